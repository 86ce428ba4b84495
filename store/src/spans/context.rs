//! Where a span belongs, as W3C Trace Context writes it.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

/// The first span of a new trace, which is recorded.
pub fn root() -> SpanContext {
    let ids = RandomIdGenerator::default();
    local(ids.new_trace_id(), ids.new_span_id(), TraceFlags::SAMPLED)
}

/// Another span in the same trace.
pub fn child(of: &SpanContext) -> SpanContext {
    local(of.trace_id(), RandomIdGenerator::default().new_span_id(), of.trace_flags())
}

fn local(trace: TraceId, span: SpanId, flags: TraceFlags) -> SpanContext {
    SpanContext::new(trace, span, flags, false, TraceState::NONE)
}

/// A span of the caller.
pub fn remote(trace: TraceId, span: SpanId, flags: TraceFlags) -> Option<SpanContext> {
    let context = SpanContext::new(trace, span, flags, true, TraceState::NONE);
    context.is_valid().then_some(context)
}

/// What `traceparent` says, if it is one that we understand: `00-TRACE-SPAN-FLAGS`, or longer in later versions. The
/// propagator of the SDK takes numbers that are too short, too.
pub fn parse_traceparent(text: &[u8]) -> Option<SpanContext> {
    let mut parts = text.trim_ascii().split(|byte| *byte == b'-');
    let [version] = hex(parts.next()?)?;
    let (trace, span) = (hex(parts.next()?)?, hex(parts.next()?)?);
    let [flags] = hex(parts.next()?)?;
    let has_more = parts.next().is_some();
    let is_known = version != 0xff && !(version == 0 && has_more);
    let flags = TraceFlags::new(flags) & TraceFlags::SAMPLED;
    remote(TraceId::from_bytes(trace), SpanId::from_bytes(span), flags).filter(|_| is_known)
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
        let context = parse_traceparent(good.as_bytes()).expect("good");
        assert_eq!(context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(
            (context.span_id().to_string().as_str(), context.is_sampled()),
            ("b7ad6b7169203331", true)
        );
        assert!(
            parse_traceparent(good.replace("-01", "-02").as_bytes())
                .is_some_and(|context| !context.is_sampled())
        );
        assert!(parse_traceparent(format!("01{}-more", &good[2..]).as_bytes()).is_some());
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
            assert_eq!(parse_traceparent(bad.as_bytes()), None, "{bad}");
        }
    }
}
