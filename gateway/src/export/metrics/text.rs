//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write as _;

use super::table::Metric;
use super::{Gathered, Labels, Value};
use store::latency::BOUNDS;

/// Everything as text.
pub fn render(gathered: &Gathered) -> String {
    let mut text = String::new();
    for (metric, points) in gathered.families() {
        let Metric { name, help, kind, .. } = metric;
        line(&mut text, format_args!("# HELP {name} {help}\n# TYPE {name} {}", kind.word()));
        for point in points {
            match &point.value {
                Value::Number(value) => {
                    let labels = shown(metric, &point.labels, None);
                    line(&mut text, format_args!("{name}{labels} {value}"));
                }
                Value::Times(buckets, nanos) => {
                    let mut sum = 0;
                    let bounds = BOUNDS.iter().map(|bound| (*bound as f64 / 1e9).to_string());
                    for (count, bound) in buckets.iter().zip(bounds.chain(["+Inf".to_owned()])) {
                        sum += count;
                        let labels = shown(metric, &point.labels, Some(&bound));
                        line(&mut text, format_args!("{name}_bucket{labels} {sum}"));
                    }
                    let labels = shown(metric, &point.labels, None);
                    line(&mut text, format_args!("{name}_sum{labels} {}", *nanos as f64 / 1e9));
                    line(&mut text, format_args!("{name}_count{labels} {sum}"));
                }
            }
        }
    }
    text
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{what}");
}

/// Labels between braces, or nothing if there are none.
fn shown(metric: &Metric, values: &Labels, bound: Option<&str>) -> String {
    let mut text = String::new();
    let bound = bound.map(|bound| ("le", bound));
    let values = metric.labels.iter().copied().zip(values.iter().map(|value| &**value));
    for (name, value) in values.chain(bound) {
        text.push(if text.is_empty() { '{' } else { ',' });
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{name}=\"{value}\"");
    }
    if !text.is_empty() {
        text.push('}');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_labels_and_times() {
        let mut gathered = Gathered::default();
        gathered.number("moonshard_topology_epoch", 7);
        gathered.labelled("moonshard_errors_total", "a\"b\\c\nd", 3);
        let mut buckets = [0; BOUNDS.len() + 1];
        (buckets[0], buckets[1], buckets[12]) = (1, 2, 1);
        gathered.times("moonshard_lock_wait_seconds", Vec::new(), (buckets, 2_500_000_000));
        let text = render(&gathered);
        assert!(
            text.contains("# TYPE moonshard_topology_epoch gauge\nmoonshard_topology_epoch 7\n"),
            "{text}"
        );
        assert!(text.contains("moonshard_errors_total{code=\"a\\\"b\\\\c\\nd\"} 3\n"), "{text}");
        assert!(text.contains("moonshard_lock_wait_seconds_bucket{le=\"0.000001024\"} 1\n"), "{text}");
        assert!(text.contains("moonshard_lock_wait_seconds_bucket{le=\"0.000002048\"} 3\n"), "{text}");
        assert!(text.contains("moonshard_lock_wait_seconds_bucket{le=\"+Inf\"} 4\n"), "{text}");
        let end = "moonshard_lock_wait_seconds_sum 2.5\nmoonshard_lock_wait_seconds_count 4\n";
        assert!(text.contains(end), "{text}");
    }
}
