//! Reads messages of clients that have a bounded number of elements: an empty argument has two bytes in a message and
//! sixteen times as many in memory.

use std::any::TypeId;
use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint, skip_field};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::ProstDecoder;

use crate::gateway::v1::{Command, EvalRequest, EvalShaRequest, ExecuteRequest, PipelineRequest};
use crate::reserving::ReservingEncoder;

/// Elements that a message of a client may have, those of its commands included: as many as a request of RESP.
const MOST_ELEMENTS: usize = 1024 * 1024;

/// Writes `T` and reads `U` as prost does.
#[derive(Debug, Clone)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        BoundedCodec(PhantomData)
    }
}

impl<T: Message + Send + 'static, U: Message + Default + Send + 'static> Codec for BoundedCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ReservingEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ReservingEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstDecoder::new(BufferSettings::default()))
    }
}

/// Reads messages.
#[derive(Debug)]
pub struct BoundedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default + 'static> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let is = |known: TypeId| known == TypeId::of::<U>();
        let lists = [
            TypeId::of::<ExecuteRequest>(),
            TypeId::of::<EvalRequest>(),
            TypeId::of::<EvalShaRequest>(),
            TypeId::of::<PipelineRequest>(),
        ];
        if lists.into_iter().any(is) {
            let nested = is(TypeId::of::<PipelineRequest>()).then_some(COMMANDS);
            refuse_too_many(message.chunk(), nested)?;
        }
        self.0.decode(message)
    }
}

/// The field of [`PipelineRequest`] with messages of the type [`Command`], whose elements count too.
const COMMANDS: u32 = 2;
const _: fn(PipelineRequest) -> Vec<Command> = |request| request.commands;

/// Refuses a message with too many elements; those in field `nested` are messages. What is no message is left to prost.
fn refuse_too_many(bytes: &[u8], nested: Option<u32>) -> Result<(), Status> {
    // The shortest element has two bytes.
    if bytes.len() / 2 <= MOST_ELEMENTS || count(bytes, nested) <= MOST_ELEMENTS {
        return Ok(());
    }
    Err(Status::resource_exhausted(format!("REQUEST a message has more than {MOST_ELEMENTS} elements")))
}

/// Elements of a message, up to the first byte that belongs to none.
fn count(mut bytes: &[u8], nested: Option<u32>) -> usize {
    let mut elements = 0;
    while !bytes.is_empty() && elements <= MOST_ELEMENTS {
        let Ok((field, wire_type)) = decode_key(&mut bytes) else { break };
        elements += 1;
        if wire_type != WireType::LengthDelimited {
            if skip_field(wire_type, field, &mut bytes, Default::default()).is_err() {
                break;
            }
            continue;
        }
        let len = decode_varint(&mut bytes).ok().and_then(|len| usize::try_from(len).ok());
        let Some((content, rest)) = len.and_then(|len| bytes.split_at_checked(len)) else { break };
        if nested == Some(field) {
            elements += count(content, None);
        }
        bytes = rest;
    }
    elements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_counted_at_both_levels() {
        let command = |args: usize| Command { args: vec![Vec::new().into(); args] };
        let request = PipelineRequest { id: 7, commands: vec![command(3), command(0)], ..Default::default() };
        assert_eq!(count(&request.encode_to_vec(), Some(COMMANDS)), 6);
        assert_eq!(count(&command(3).encode_to_vec(), None), 3);
        assert_eq!(count(&[0xff; 20], None), 0, "no message");
    }

    #[test]
    fn too_many_elements_are_refused() {
        let execute =
            |args: usize| ExecuteRequest { args: vec![Vec::new().into(); args], ..Default::default() };
        assert!(refuse_too_many(&execute(MOST_ELEMENTS).encode_to_vec(), None).is_ok());
        let refused = refuse_too_many(&execute(MOST_ELEMENTS + 1).encode_to_vec(), None).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    }
}
