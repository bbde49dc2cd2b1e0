//! Connects spans to traces that start and continue in other processes (W3C Trace Context).

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::{OpenTelemetrySpanExt, SetParentError};

/// Makes the caller's span, named by `traceparent`, the parent of a new span. Must be called before the span is
/// entered.
pub fn continue_trace(span: &Span, traceparent: &str) {
    if span.is_disabled() {
        return;
    }
    let Some(caller) = parse(traceparent) else {
        return;
    };
    let context = opentelemetry::Context::new().with_remote_span_context(caller);
    match span.set_parent(context) {
        // A span that is only logged belongs to no trace.
        Ok(()) | Err(SetParentError::LayerNotFound | SetParentError::SpanDisabled) => {}
        Err(error @ SetParentError::AlreadyStarted) => {
            tracing::warn!(%error, "the caller's trace is not continued");
        }
    }
}

/// The `traceparent` that makes this span the parent of another process's span; `None` if no collector gets it.
pub fn traceparent(span: &Span) -> Option<String> {
    if span.is_disabled() {
        return None;
    }
    let context = span.context();
    let span = context.span();
    let place = span.span_context();
    place.is_valid().then(|| {
        let flags = (place.trace_flags() & TraceFlags::SAMPLED).to_u8();
        format!("00-{}-{}-{flags:02x}", place.trace_id(), place.span_id())
    })
}

/// Reads a `traceparent` of version 00.
fn parse(traceparent: &str) -> Option<SpanContext> {
    let mut fields = traceparent.strip_prefix("00-")?.split('-');
    let trace = TraceId::from_hex(fields.next()?).ok()?;
    let span = SpanId::from_hex(fields.next()?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(fields.next()?, 16).ok()?) & TraceFlags::SAMPLED;
    let caller = SpanContext::new(trace, span, flags, true, TraceState::default());
    (caller.is_valid() && fields.next().is_none()).then_some(caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_names_a_span_of_a_trace_and_whether_it_is_sampled() {
        let read = |flags| parse(&format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}"));
        let caller = read("01").expect("it is valid");
        assert_eq!(caller.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(caller.span_id().to_string(), "b7ad6b7169203331");
        assert!(caller.is_sampled() && caller.is_remote());
        assert!(!read("00").expect("it is valid").is_sampled());
    }

    #[test]
    fn what_is_no_traceparent_names_nothing() {
        let long = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x";
        let all_zero = "00-00000000000000000000000000000000-0000000000000000-01";
        for bad in [
            "",
            "00",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            long,
            all_zero,
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_span_without_a_collector_has_no_place() {
        assert_eq!(traceparent(&Span::none()), None);
    }
}
