//! Messages between replicas as bytes, and what is checked of one before the Raft implementation sees it.

use bytes::Bytes;
use protobuf::Message as _;
use raft::eraftpb::{Message, MessageType};

use crate::error::ConsensusError;

/// A message to another replica of the group.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The replica that it is for.
    pub to: u64,
    /// The message.
    pub bytes: Bytes,
}

/// As it is sent.
pub(crate) fn encode(messages: Vec<Message>) -> Vec<Outgoing> {
    // Writing into memory fails only for messages of 2 GiB and more, which no log has room for. Like one that the network
    // loses it is sent again.
    let outgoing =
        |message: Message| Some(Outgoing { to: message.to, bytes: message.write_to_bytes().ok()?.into() });
    messages.into_iter().filter_map(outgoing).collect()
}

/// Reads a message for replica `me`. The Raft implementation ends the process if entries do not follow each other, so that is
/// checked here.
pub(crate) fn decode(bytes: &[u8], me: u64) -> Result<Message, ConsensusError> {
    let invalid = |what: &str| ConsensusError::InvalidMessage(what.to_owned());
    let message = Message::parse_from_bytes(bytes).map_err(|_| invalid("it cannot be read"))?;
    if message.to != me || message.from == me {
        return Err(invalid(&format!("it is for replica {}, this is replica {me}", message.to)));
    }
    // A replica proposes to itself alone: what was proposed to one that is no leader any more is not passed on.
    let is_foreign = matches!(
        message.msg_type,
        MessageType::MsgHup
            | MessageType::MsgBeat
            | MessageType::MsgPropose
            | MessageType::MsgUnreachable
            | MessageType::MsgSnapStatus
            | MessageType::MsgCheckQuorum
            | MessageType::MsgTransferLeader
            | MessageType::MsgReadIndex
            | MessageType::MsgReadIndexResp
    );
    if is_foreign {
        return Err(invalid("another replica may not send it"));
    }
    let follow = message.entries.iter().zip(1..).all(|(entry, at)| {
        message.index.checked_add(at) == Some(entry.index) && entry.term <= message.term && entry.term > 0
    });
    let ascend = message.entries.windows(2).all(|pair| pair[0].term <= pair[1].term);
    if !follow || !ascend || message.entries.first().is_some_and(|first| first.term < message.log_term) {
        return Err(invalid("its entries do not follow each other"));
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use raft::eraftpb::Entry;

    fn refused(change: impl FnOnce(&mut Message)) -> Option<String> {
        let entry = |index| Entry { index, term: 2, ..Entry::default() };
        let mut message = Message { from: 1, to: 2, term: 3, log_term: 1, index: 6, ..Message::default() };
        message.set_msg_type(MessageType::MsgAppend);
        message.entries = vec![entry(7), entry(8)].into();
        change(&mut message);
        let bytes = message.write_to_bytes().expect("it is small");
        decode(&bytes, 2).err().map(|error| error.to_string())
    }

    #[test]
    fn what_would_end_the_process_is_refused() {
        let text = "invalid message of another replica:";
        let entries = Some(format!("{text} its entries do not follow each other"));
        assert_eq!(refused(|_| ()), None);
        assert_eq!(refused(|message| message.entries[1].index = 9), entries);
        assert_eq!(refused(|message| message.entries[0].index = 8), entries);
        assert_eq!(refused(|message| message.index = u64::MAX), entries);
        assert_eq!(refused(|message| message.entries[1].term = 4), entries);
        assert_eq!(refused(|message| message.entries[1].term = 1), entries);
        assert_eq!(refused(|message| message.log_term = 3), entries);
        let other = Some(format!("{text} it is for replica 5, this is replica 2"));
        assert_eq!(refused(|message| message.to = 5), other);
        let foreign = Some(format!("{text} another replica may not send it"));
        assert_eq!(refused(|message| message.set_msg_type(MessageType::MsgPropose)), foreign);
        assert_eq!(
            decode(b"\x07", 2).err().map(|error| error.to_string()),
            Some(format!("{text} it cannot be read"))
        );
    }
}
