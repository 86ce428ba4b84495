//! What the fuzz targets hold, for their seeds and for inputs made of them: the same ones in every run.

#[path = "../../fuzz/fuzz_targets/property.rs"]
mod property;
#[path = "../../engine/fuzz/fuzz_targets/sow.rs"]
mod sower;

use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Panics of tasks too, which nobody hears of otherwise.
static PANICS: AtomicUsize = AtomicUsize::new(0);
static LISTEN: Once = Once::new();

fn run_seeds(target: &str, mutants: usize, property: fn(&[u8])) {
    LISTEN.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Another test that fails meanwhile is not about these inputs. The threads of tests have their names.
            let is_other = |name: &str| name.contains("::") && !name.starts_with("fuzz_seeds::");
            if !std::thread::current().name().is_some_and(is_other) {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            usual(panic);
        }));
    });
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    sower::run_seeds(&dir, mutants, |input| {
        property(input);
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a task has panicked");
    });
}

#[test]
fn requests() {
    run_seeds("requests", 60, property::requests);
}

#[test]
fn responses() {
    run_seeds("responses", 30, property::responses);
}
