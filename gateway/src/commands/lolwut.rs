//! LOLWUT: tonight's moon.

use std::f64::consts::TAU;

use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, Group, Reply};

use super::rows::{CONNECTION, REDIS_VERSION};
use crate::server::{Handler, SessionCommand};
use crate::telemetry::counters::unix_time;

/// The row.
pub static COMMANDS: &[SessionCommand] = &[SessionCommand {
    spec: Command {
        name: "lolwut",
        since: "5.0.0",
        group: Group::Server,
        arity: Arity::AtLeast(1),
        flags: flags::FAST,
        summary: "Draws the phase of the moon, now or on another day.",
        syntax: "VERSION=version:int? days:int?",
        ..CONNECTION
    },
    run: Handler::Inline(|_, _, args, out| lolwut(args, out)),
}];

/// Unix time of a new moon, in seconds, and days from one to the next.
const NEW_MOON: f64 = 947_182_440.0;
const MONTH_DAYS: f64 = 29.530_588_853;
const DAY_SECONDS: f64 = 86_400.0;

/// `days` from now; Redis takes a version, too, which chooses among pictures of which there is one here. As in Redis it does
/// not matter what else is said.
fn lolwut(args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let mut cursor = args.cursor(1);
    if cursor.remaining() > 1 && cursor.flag("VERSION") {
        cursor.integer()?;
    }
    let days = cursor.integer().unwrap_or(0);
    let age = (unix_time().as_secs_f64() - NEW_MOON) / DAY_SECONDS + days as f64;
    let phase = (age / MONTH_DAYS).rem_euclid(1.0);
    let version = env!("CARGO_PKG_VERSION");
    let text = format!("{}\nMoonshard ver. {version}, Redis ver. {REDIS_VERSION}\n", moon(phase));
    out.verbatim("txt", text.as_bytes());
    Ok(())
}

/// The moon as the northern half of the Earth sees it: new at 0, full at one half.
fn moon(phase: f64) -> String {
    const ROWS: i32 = 12;
    let terminator = (phase * TAU).cos();
    let mut text = String::new();
    for row in 0..ROWS {
        let y = (f64::from(row) + 0.5) / f64::from(ROWS) * 2.0 - 1.0;
        let width = (1.0 - y * y).sqrt();
        // Letters are twice as high as they are wide.
        let line = (0..2 * ROWS).map(|column| {
            let x = (f64::from(column) + 0.5) / f64::from(ROWS) - 1.0;
            let lit = if phase < 0.5 { x > terminator * width } else { x < -terminator * width };
            match x.abs() <= width {
                false => ' ',
                true if lit => '@',
                true => '.',
            }
        });
        text.push_str(line.collect::<String>().trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moon_waxes_on_the_right_and_wanes_on_the_left() {
        let lit = |phase: f64| moon(phase).matches('@').count();
        let all = lit(0.5);
        assert!(lit(0.0) == 0 && lit(0.5) > 200 && moon(0.5).matches('.').count() == 0);
        assert_eq!((2 * lit(0.25), 2 * lit(0.75)), (all, all));
        let middle = |phase: f64| moon(phase).lines().nth(6).map(str::to_owned);
        assert_eq!(middle(0.25).as_deref(), Some("............@@@@@@@@@@@@"));
        assert_eq!(middle(0.75).as_deref(), Some("@@@@@@@@@@@@............"));
    }
}
