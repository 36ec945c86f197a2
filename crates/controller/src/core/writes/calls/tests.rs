//! Calls that the API server does not allow.

use super::*;

/// Counts warnings.
#[derive(Clone, Default)]
struct Warnings(std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn missing_rights_on_ten_thousand_nodes_are_one_warning_a_minute() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let metrics = Metrics::default();
    for number in 0..10_000 {
        let message = format!("nodeimages \"node-{number}\" is forbidden");
        let status = kube::core::Status::failure(&message, "Forbidden").with_code(403);
        let forbidden = std::future::ready(Err::<(), _>(kube::Error::Api(Box::new(status))));
        let called = call("nodeimage_patch", &metrics, forbidden).await;
        assert!(matches!(called, CallResult::Forbidden(_)));
        // Ten seconds in all.
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert_eq!(warnings.0.load(std::sync::atomic::Ordering::Relaxed), 1);
}
