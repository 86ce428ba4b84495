//! Messages of Protocol Buffers that are written as they are sent: nothing is allocated for their parts.

use prost::bytes::BufMut;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

/// One that is being written.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// One for which there is room at once.
    pub fn with_capacity(bytes: usize) -> Message {
        Message(Vec::with_capacity(bytes))
    }

    /// What is written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// How many bytes that are.
    pub fn byte_count(&self) -> usize {
        self.0.len()
    }

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
        self.head(field, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// The head of a message within that is so long. It is appended next.
    pub fn head(&mut self, field: u32, len: usize) {
        encode_key(field, WireType::LengthDelimited, &mut self.0);
        encode_varint(len as u64, &mut self.0);
    }

    /// Fields that are written already.
    pub fn append(&mut self, fields: &Message) {
        self.0.extend_from_slice(&fields.0);
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
        if room > 1 {
            self.0.resize(at + room + len, 0);
            self.0.copy_within(at + 1..at + 1 + len, at + room);
        }
        encode_varint(len as u64, &mut &mut self.0[at..]);
    }
}
