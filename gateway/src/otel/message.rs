//! Messages of Protocol Buffers that are written as they are sent: nothing is allocated for their parts.

use std::marker::PhantomData;

use prost::bytes::BufMut;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::{ProstCodec, ProstDecoder};

/// One that is being written.
#[derive(Default)]
pub struct Message(pub(super) Vec<u8>);

impl Message {
    /// A number of variable length.
    pub fn number(&mut self, field: u32, number: u64) {
        encode_key(field, WireType::Varint, &mut self.0);
        encode_varint(number, &mut self.0);
    }

    /// A number of eight bytes.
    pub fn fixed64(&mut self, field: u32, number: u64) {
        encode_key(field, WireType::SixtyFourBit, &mut self.0);
        self.0.put_u64_le(number);
    }

    /// A number of four bytes.
    pub fn fixed32(&mut self, field: u32, number: u32) {
        encode_key(field, WireType::ThirtyTwoBit, &mut self.0);
        self.0.put_u32_le(number);
    }

    /// Bytes, a text, or a message that is written already.
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        encode_key(field, WireType::LengthDelimited, &mut self.0);
        encode_varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
    }

    /// A message within.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Message)) {
        encode_key(field, WireType::LengthDelimited, &mut self.0);
        // The length of most takes one byte; longer ones are moved.
        let at = self.0.len();
        self.0.push(0);
        write(self);
        let len = self.0.len() - at - 1;
        let room = encoded_len_varint(len as u64);
        self.0.resize(at + room + len, 0);
        self.0.copy_within(at + 1..at + 1 + len, at + room);
        encode_varint(len as u64, &mut &mut self.0[at..]);
    }
}

/// Sends such a message, and receives one of another kind.
pub struct Written<Answer>(PhantomData<Answer>);

impl<Answer> Default for Written<Answer> {
    fn default() -> Self {
        Written(PhantomData)
    }
}

impl<Answer: prost::Message + Default + Send + 'static> Codec for Written<Answer> {
    type Encode = Message;
    type Decode = Answer;
    type Encoder = Self;
    type Decoder = ProstDecoder<Answer>;

    fn encoder(&mut self) -> Self {
        Written::default()
    }

    fn decoder(&mut self) -> ProstDecoder<Answer> {
        ProstCodec::<(), Answer>::raw_decoder(BufferSettings::default())
    }
}

impl<Answer> Encoder for Written<Answer> {
    type Item = Message;
    type Error = Status;

    fn encode(&mut self, message: Message, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put_slice(&message.0);
        Ok(())
    }
}
