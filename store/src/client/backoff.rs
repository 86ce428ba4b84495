//! How long a request follows slots that move.

use std::time::Duration;

use store_engine::CommandError;
use tokio::time::{Instant, sleep};

/// As long as this nothing is refused because slots move. Their new node may have to be asked again until it knows.
const RETRY_FOR: Duration = Duration::from_secs(5);
/// The second and the longest pause between two attempts; the first one comes at once.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// The error for a request whose slots have been moving for too long.
pub(super) const MOVING: CommandError = CommandError::new("TRYAGAIN nothing was done: slots are moving");

/// A caller that has waited so long for the answer to an attempt had reached the right node.
const SETTLED: Duration = Duration::from_secs(1);

/// The attempts of one request.
#[derive(Default)]
pub struct Backoff {
    /// When it began, and when the newest attempt did.
    since: Option<(Instant, Instant)>,
    pause: Duration,
}

impl Backoff {
    /// Waits until it is time for another attempt; an error if it is too late.
    pub async fn again(&mut self) -> Result<(), CommandError> {
        let now = Instant::now();
        let since = match self.since {
            Some((since, last)) if now - last < SETTLED => since,
            _ => {
                *self = Backoff { since: Some((now, now)), pause: Duration::ZERO };
                return Ok(());
            }
        };
        if now - since > RETRY_FOR {
            return Err(MOVING);
        }
        self.pause = (self.pause * 2).clamp(PAUSES.0, PAUSES.1);
        sleep(self.pause).await;
        self.since = Some((since, Instant::now()));
        Ok(())
    }
}
