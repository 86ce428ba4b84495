//! Writes messages into memory of their length.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{EncodeBuf, Encoder};

/// Writes messages. The encoder of `tonic-prost` lets the memory grow as it is filled: the field behind a value of 500 MB then
/// takes as much again, and a copy.
#[derive(Debug)]
pub struct ReservingEncoder<T>(PhantomData<T>);

impl<T> Default for ReservingEncoder<T> {
    fn default() -> Self {
        ReservingEncoder(PhantomData)
    }
}

impl<T: Message> Encoder for ReservingEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(message.encoded_len());
        message.encode_raw(buffer);
        Ok(())
    }
}
