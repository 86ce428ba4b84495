//! LATENCY GRAPH and DOCTOR, as Redis writes them.

use std::fmt::Write as _;

use crate::telemetry::latency::Series;

/// Samples side by side.
const COLUMNS: usize = 80;
/// Lines of a picture.
const ROWS: usize = 4;
/// A third of a line, two thirds, all of it.
const LEVELS: &[u8; 3] = b"_o#";

/// The picture of one kind of spikes, as of this second.
pub fn graph(kind: &str, series: &Series, now: u64) -> String {
    let millis = || series.spikes.iter().map(|spike| spike.millis);
    let (low, high) = (millis().min().unwrap_or(0), millis().max().unwrap_or(0));
    let mut text =
        format!("{kind} - high {high} ms, low {low} ms (all time high {} ms)\n", series.most_millis);
    text.push_str(&"-".repeat(COLUMNS));
    text.push('\n');
    let samples: Vec<(u64, String)> =
        series.spikes.iter().map(|spike| (spike.millis - low, ago(now.saturating_sub(spike.at)))).collect();
    for (at, samples) in samples.chunks(COLUMNS).enumerate() {
        if at > 0 {
            text.push('\n');
        }
        draw(samples, high - low, &mut text);
    }
    text
}

/// How long ago something was.
fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Draws values from 0 to `most`, and their labels from top to bottom.
fn draw(samples: &[(u64, String)], most: u64, text: &mut String) {
    let steps = (LEVELS.len() * ROWS) as u64;
    let step = |value: u64| (value * steps / most.max(1)).min(steps - 1) as usize;
    for row in 0..ROWS {
        let floor = (ROWS - row - 1) * LEVELS.len();
        for (value, _) in samples {
            text.push(match step(*value).checked_sub(floor) {
                None => ' ',
                Some(level) => LEVELS.get(level).map_or('|', |level| char::from(*level)),
            });
        }
        text.push('\n');
    }
    let blank = " ".repeat(samples.len()) + "\n";
    text.push_str(&blank);
    let longest = samples.iter().map(|(_, label)| label.len()).max().unwrap_or(0);
    for at in 0..longest {
        text.extend(
            samples.iter().map(|(_, label)| label.as_bytes().get(at).map_or(' ', |byte| char::from(*byte))),
        );
        text.push('\n');
    }
}

/// What can be said of all spikes. `threshold` is 0 if they are not looked for.
pub fn doctor(all: &[(&'static str, Series)], threshold: u64, now: u64) -> String {
    if threshold == 0 && all.is_empty() {
        return "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Redis instance. You may use \
                \"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to enable it. If we weren't in a deep \
                space mission I'd suggest to take a look at https://redis.io/topics/latency-monitor.\n"
            .to_owned();
    }
    if all.is_empty() {
        return "Dave, no latency spike was observed during the lifetime of this Redis instance, not in the slightest \
                bit. I honestly think you ought to sit down calmly, take a stress pill, and think things over.\n"
            .to_owned();
    }
    let mut text = "Dave, I have observed latency spikes in this Redis instance. You don't mind talking about it, do you \
                    Dave?\n\n"
        .to_owned();
    for (number, (kind, series)) in (1..).zip(all) {
        let count = series.spikes.len() as u64;
        let sum: u64 = series.spikes.iter().map(|spike| spike.millis).sum();
        let average = sum / count.max(1);
        let deviation =
            series.spikes.iter().map(|spike| spike.millis.abs_diff(average)).sum::<u64>() / count.max(1);
        let first = series.spikes.front().map_or(now, |spike| spike.at);
        let period = now.saturating_sub(first) as f64 / count.max(1) as f64;
        let _ = writeln!(
            text,
            "{number}. {kind}: {count} latency spikes (average {average}ms, mean deviation {deviation}ms, period \
             {period:.2} sec). Worst all time event {}ms.",
            series.most_millis
        );
    }
    text.push_str(
        "\nI have a few advices for you:\n\n- Check your Slow Log to understand what are the commands you are running \
         which are too slow to execute. Please check https://redis.io/commands/slowlog for more information.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::latency::Spike;

    #[test]
    fn the_picture_is_that_of_redis() {
        let spikes = [(940, 5), (950, 10), (40, 20), (999, 17)].map(|(at, millis)| Spike { at, millis });
        let series = Series { spikes: spikes.into(), most_millis: 99 };
        let lines = graph("command", &series, 1000);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines[0], "command - high 20 ms, low 5 ms (all time high 99 ms)");
        assert_eq!(lines[1], "-".repeat(80));
        assert_eq!(lines[2..], ["  #_", "  ||", " o||", "_|||", "    ", "1511", "m06s", " sm "]);
    }
}
