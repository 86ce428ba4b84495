//! How the end of an RDB file is known that a server sends to its replica.

/// Bytes of the mark behind a file whose length is not known before its end.
const MARK_BYTES: usize = 40;

/// How the end of a file is known.
#[derive(Debug, PartialEq, Eq)]
pub enum FileEnd {
    /// After so many bytes.
    After(u64),
    /// Before these bytes.
    Before(Vec<u8>),
}

impl FileEnd {
    /// What the line before a file says.
    pub fn parse(line: &[u8]) -> Option<FileEnd> {
        let text = line.strip_prefix(b"$")?;
        match text.strip_prefix(b"EOF:") {
            Some(mark) => (mark.len() == MARK_BYTES).then(|| FileEnd::Before(mark.to_vec())),
            None => std::str::from_utf8(text).ok()?.parse().ok().map(FileEnd::After),
        }
    }

    /// How many of the bytes received, which are all that are not taken, belong to the file; and whether it ends there.
    pub fn of(&self, received: &[u8]) -> (usize, bool) {
        match self {
            FileEnd::After(left) => {
                let held = usize::try_from(*left).map_or(received.len(), |left| left.min(received.len()));
                (held, held as u64 == *left)
            }
            FileEnd::Before(mark) if received.ends_with(mark) => (received.len() - mark.len(), true),
            FileEnd::Before(mark) => (received.len().saturating_sub(mark.len()), false),
        }
    }

    /// So many bytes of the file were taken.
    pub fn take(&mut self, bytes: usize) {
        if let FileEnd::After(left) = self {
            *left = left.saturating_sub(bytes as u64);
        }
    }

    /// Bytes behind the file that are no part of what follows it.
    pub fn mark_bytes(&self) -> usize {
        match self {
            FileEnd::After(_) => 0,
            FileEnd::Before(mark) => mark.len(),
        }
    }

    /// Bytes of the file that are not taken, if that is known.
    pub fn left(&self) -> Option<u64> {
        match self {
            FileEnd::After(left) => Some(*left),
            FileEnd::Before(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_known_in_both_forms() {
        let mark = [b'm'; MARK_BYTES];
        let line = [&b"$EOF:"[..], &mark].concat();
        assert_eq!(FileEnd::parse(&line), Some(FileEnd::Before(mark.to_vec())));
        assert_eq!(FileEnd::parse(b"$12"), Some(FileEnd::After(12)));
        for line in [&b"$EOF:short"[..], b"$-1", b"$", b"12", b"-ERR no", b"$18446744073709551616"] {
            assert_eq!(FileEnd::parse(line), None, "{}", line.escape_ascii());
        }
        let end = FileEnd::Before(mark.to_vec());
        assert_eq!(end.of(b"abc"), (0, false), "it could be the mark");
        assert_eq!(end.of(&[b'a'; 50]), (10, false));
        assert_eq!(end.of(&[&b"abc"[..], &mark].concat()), (3, true));
        assert_eq!(end.of(&mark), (0, true));
        assert_eq!(FileEnd::After(2).of(b"abc"), (2, true));
        assert_eq!(FileEnd::After(4).of(b"abc"), (3, false));
        assert_eq!(FileEnd::After(0).of(b""), (0, true));
        let mut end = FileEnd::After(4);
        end.take(3);
        assert_eq!((end.left(), end.mark_bytes()), (Some(1), 0));
    }
}
