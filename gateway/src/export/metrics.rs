//! The metrics of the server: for Prometheus at `/metrics`, and for OpenTelemetry.
//!
//! [`table::METRICS`] says what there is, and is the documentation. A family gathers its values when they are scraped;
//! nothing here is on the way of a request.

mod gather;
mod node;
pub mod table;
mod text;

pub use gather::of_server;
pub use node::{of_node, of_replicas};
pub use text::render;

use std::borrow::Cow;

use table::{METRICS, Metric};

use store::latency::Buckets;

/// Values of labels, in the order of their names in the table.
pub type Labels = Vec<Cow<'static, str>>;

/// A value with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Values of the labels.
    pub labels: Labels,
    /// What is measured.
    pub value: Value,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A sum or a state.
    Number(f64),
    /// How many times are within each of [`store::times::BOUNDS`], how many beyond, and the sum of all in nanoseconds.
    Times(Buckets, u64),
}

/// The values of all metrics that there are of this process.
#[derive(Default)]
pub struct Gathered {
    /// By number of the metric.
    points: Vec<Vec<Point>>,
}

impl Gathered {
    /// Each metric that there are values of, with these.
    pub fn families(&self) -> impl Iterator<Item = (&'static Metric, &[Point])> {
        let listed = METRICS.iter().zip(&self.points).map(|(metric, points)| (metric, &**points));
        listed.filter(|(_, points)| !points.is_empty())
    }

    fn push(&mut self, name: &str, labels: Labels, value: Value) {
        self.points.resize(METRICS.len(), Vec::new());
        let at = METRICS.iter().position(|metric| metric.name == name);
        debug_assert!(at.is_some_and(|at| METRICS[at].labels.len() == labels.len()), "{name}");
        if let Some(at) = at {
            self.points[at].push(Point { labels, value });
        }
    }

    /// A value without labels.
    #[allow(clippy::cast_precision_loss, reason = "metrics are floating point everywhere")]
    fn number(&mut self, name: &str, value: u64) {
        self.push(name, Vec::new(), Value::Number(value as f64));
    }

    /// A value with one label.
    #[allow(clippy::cast_precision_loss, reason = "metrics are floating point everywhere")]
    fn labelled(&mut self, name: &str, label: impl Into<Cow<'static, str>>, value: u64) {
        self.push(name, vec![label.into()], Value::Number(value as f64));
    }

    /// A value in seconds.
    fn seconds(&mut self, name: &str, labels: Labels, value: f64) {
        self.push(name, labels, Value::Number(value));
    }

    /// Times.
    fn times(&mut self, name: &str, labels: Labels, (buckets, nanos): (Buckets, u64)) {
        self.push(name, labels, Value::Times(buckets, nanos));
    }
}
