//! Where a span belongs, as W3C Trace Context writes it.

use super::chance;

/// A span's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The trace, which all spans of a request share.
    pub trace: [u8; 16],
    /// The span.
    pub span: [u8; 8],
    /// Whether it is recorded.
    pub sampled: bool,
}

impl Context {
    /// The first of a new trace, which is recorded.
    pub fn root() -> Context {
        let mut trace = [0; 16];
        trace[..8].copy_from_slice(&id());
        trace[8..].copy_from_slice(&id());
        Context { trace, span: id(), sampled: true }
    }

    /// Another one in the same trace.
    pub fn child(&self) -> Context {
        Context { span: id(), ..*self }
    }

    /// What `traceparent` says, if it is one that we understand: `00-TRACE-SPAN-FLAGS`, or longer in later versions.
    pub fn parse(text: &[u8]) -> Option<Context> {
        let mut parts = text.trim_ascii().split(|byte| *byte == b'-');
        let [version] = hex(parts.next()?)?;
        let (trace, span) = (hex(parts.next()?)?, hex(parts.next()?)?);
        let [flags] = hex(parts.next()?)?;
        let has_more = parts.next().is_some();
        let is_known = version != 0xff && !(version == 0 && has_more);
        let is_named = trace != [0; 16] && span != [0; 8];
        (is_known && is_named).then_some(Context { trace, span, sampled: flags & 1 == 1 })
    }

    /// The trace as text.
    pub fn trace_text(&self) -> String {
        self.trace.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The span as text.
    pub fn span_text(&self) -> String {
        self.span.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A name that nobody else has; not zero.
fn id() -> [u8; 8] {
    chance().max(1).to_be_bytes()
}

/// Lower-case digits, as the standard wants them.
fn hex<const BYTES: usize>(text: &[u8]) -> Option<[u8; BYTES]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.len() != BYTES || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traceparent_is_read() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = Context::parse(good.as_bytes()).expect("good");
        assert_eq!(context.trace_text(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!((context.span_text().as_str(), context.sampled), ("b7ad6b7169203331", true));
        assert!(
            Context::parse(good.replace("-01", "-02").as_bytes()).is_some_and(|context| !context.sampled)
        );
        assert!(Context::parse(format!("01{}-more", &good[2..]).as_bytes()).is_some());
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
        ] {
            assert_eq!(Context::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
