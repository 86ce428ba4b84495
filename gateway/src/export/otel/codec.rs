//! How messages are sent that are written already.

use std::marker::PhantomData;

use prost::bytes::BufMut;
use store::spans::message::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::{ProstCodec, ProstDecoder};

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
        out.put_slice(message.as_bytes());
        Ok(())
    }
}
