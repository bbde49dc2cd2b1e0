//! Exports spans to an OTLP collector (HTTP, protobuf), in batches, in the background.
//!
//! The SDK itself reads `OTEL_BSP_*`, `OTEL_TRACES_SAMPLER*`, `OTEL_RESOURCE_ATTRIBUTES` and
//! `OTEL_EXPORTER_OTLP_{TIMEOUT,COMPRESSION}`.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::time::Duration;

use anyhow::Context;
use opentelemetry::InstrumentationScope;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use secrecy::ExposeSecret;
use tokio::runtime::Handle;
use tracing::{Level, Metadata};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::registry::LookupSpan;

use crate::config::Otlp;

/// The version of the conventions by which spans and resource are named: the release on which those for generative AI
/// build, which have no schema of their own.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.45.0";

/// Longest wait for the last batch at the end of the process.
const FINISH: Duration = Duration::from_secs(3);

/// The exporter of this process's spans.
#[derive(Debug)]
pub(super) struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    pub(super) fn start(collector: Otlp) -> anyhow::Result<Self> {
        let runtime = Handle::try_current().context("traces cannot be exported outside of a tokio runtime")?;
        let headers = collector
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.expose_secret().to_owned()));
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_endpoint(collector.traces_url)
            .with_headers(headers.collect::<HashMap<_, _>>())
            .build()
            .context("traces cannot be exported")?;
        let resource = Resource::builder().with_service_name(collector.service_name);
        let resource = resource.with_schema_url([], SCHEMA);
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(OnRuntime { exporter, runtime })
            .with_resource(resource.build())
            .build();
        Ok(Self { provider })
    }

    /// Exports the spans of this crate, and no log lines, which may contain details for local operators only. Spans of
    /// libraries are excluded; otherwise the exporter's own client would trace itself.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span> + 'static,
    {
        let scope = InstrumentationScope::builder("gavel").with_schema_url(SCHEMA);
        let tracer = self.provider.tracer_with_scope(scope.build());
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_target(false)
            .with_threads(false)
            .with_tracked_inactivity(false);
        layer.with_filter(filter_fn(is_ours).with_max_level_hint(LevelFilter::DEBUG))
    }

    pub(super) fn finish(self) {
        if let Err(error) = self.provider.shutdown_with_timeout(FINISH) {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

fn is_ours(metadata: &Metadata<'_>) -> bool {
    let ours = metadata
        .target()
        .strip_prefix("gavel")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::") || rest.starts_with('_'));
    ours && metadata.is_span() && *metadata.level() <= Level::DEBUG
}

/// An exporter whose I/O runs on a tokio runtime, while the SDK drives it from a separate thread.
#[derive(Debug)]
struct OnRuntime<E> {
    exporter: E,
    runtime: Handle,
}

impl<E: SpanExporter> SpanExporter for OnRuntime<E> {
    fn export(&self, batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        let mut export = Box::pin(self.exporter.export(batch));
        poll_fn(move |context| {
            let _entered = self.runtime.enter();
            export.as_mut().poll(context)
        })
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
