//! Which sled may keep our data? Kills, damage and costs of two versions; see README.md.

mod check;
mod cost;
mod damage;
mod engine;
mod kill;
mod load;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
trial kill   [seconds per engine, 60]
trial damage [places per kind of file and of damage, 40]
trial cost   [share of the full size in percent, 100]
TRIAL_ENGINES, TRIAL_FOLDER, TRIAL_SEED choose among engines, where files go, and the seed.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("trial: {error}");
            ExitCode::from(2)
        }
    }
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

fn run(words: &[&str]) -> io::Result<bool> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| io::Error::other(format!("{text}: no number")));
    match words {
        // What this program starts itself as.
        ["check", engine, path, seed] => check::child(engine, Path::new(path), number(seed)?)?,
        ["write", engine, path, seed, last] => {
            kill::writer(engine, Path::new(path), number(seed)?, number(last)?)?;
        }
        ["measure", what, engine, path, percent] => {
            cost::measure(what, engine, Path::new(path), number(percent)?)?;
        }
        [what @ ("kill" | "damage" | "cost"), rest @ ..] => {
            let dir = PathBuf::from(setting("TRIAL_FOLDER", "target/trial"));
            std::fs::create_dir_all(&dir)?;
            let dir = dir.canonicalize()?;
            let seed = number(&setting("TRIAL_SEED", "1"))?;
            let amount = rest.first().map(|text| number(text)).transpose()?;
            let default = if *what == "cost" { cost::ENGINES } else { "old new16 new16+care" };
            let mut fine = true;
            for engine in setting("TRIAL_ENGINES", default).split_whitespace() {
                match *what {
                    "kill" => fine &= kill::run(engine, &dir, seed, amount.unwrap_or(60))?,
                    "damage" => damage::run(engine, &dir, seed, amount.unwrap_or(40))?,
                    _ => cost::run(engine, &dir, amount.unwrap_or(100))?,
                }
            }
            return Ok(fine);
        }
        _ => println!("{HELP}"),
    }
    Ok(true)
}
