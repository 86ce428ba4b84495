//! Who pays for the fuel of a run.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;

use script::Budget;

use super::slices::Pace;
use crate::acl::Account;
use crate::acl::limits::Limit;

/// The fuel of a run. It is paid also if the caller of the run is gone: then for each slice that it has begun.
pub(super) struct FuelMeter {
    account: Arc<Account>,
    per_second: u64,
    slice_fuel: u64,
    pace: Option<Pace>,
    /// Fuel of the slices that it has begun.
    begun: u64,
    /// What the run may use at most.
    most: u64,
    /// What it has used, once that is known.
    used: Option<u64>,
}

impl FuelMeter {
    /// Of a run of this user that may use so much, if the user's fuel is limited.
    /// Its slices are of the budget's size, or as its pace says.
    pub fn of(account: &Arc<Account>, budget: &Budget, pace: Option<Pace>) -> Option<FuelMeter> {
        let account = account.clone();
        let per_second = account.user().limits().get(Limit::FuelPerSecond)?;
        let Budget { slice_fuel, fuel, compile_fuel, .. } = *budget;
        let most = fuel.max(compile_fuel);
        Some(FuelMeter { account, per_second, slice_fuel, pace, begun: 0, most, used: None })
    }

    /// Drives the run to its end. `used` finds out what it has burned.
    pub async fn watch<T>(
        mut self,
        mut run: Pin<&mut impl Future<Output = T>>,
        used: impl FnOnce(&T) -> u64,
    ) -> T {
        let ran = poll_fn(|context| {
            let slice = self.pace.as_ref().map_or(self.slice_fuel, Pace::slice_fuel);
            self.begun = self.begun.saturating_add(slice);
            run.as_mut().poll(context)
        })
        .await;
        self.used = Some(used(&ran));
        ran
    }
}

impl Drop for FuelMeter {
    fn drop(&mut self) {
        let begun = self.begun.min(self.most);
        self.account.meter.charge_fuel(self.used.unwrap_or(begun), self.per_second);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::acl::{Acl, Commands};
    use crate::config::Config;

    #[test]
    fn what_nobody_waits_for_is_paid_by_slices() {
        let acl = Acl::new(Commands::new(std::iter::empty()), Arc::new(Config::defaults()));
        let user = acl.planned(b"u", [&b"limit:fuel-per-second=1"[..]].into_iter()).expect("right rules");
        let account = acl.put(b"u", user);
        let fuel_meter = FuelMeter {
            account: account.clone(),
            per_second: 1,
            slice_fuel: 1000,
            pace: None,
            begun: 0,
            most: 2500,
            used: None,
        };
        let mut run = pin!(pending::<()>());
        let mut watched = Box::pin(fuel_meter.watch(run.as_mut(), |()| 0));
        for _ in 0..3 {
            assert!(watched.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert_eq!(account.meter.has_fuel(), Ok(()));
        drop(watched);
        let wait = account.meter.has_fuel().expect_err("it is used up").as_secs();
        assert!((1000..=2500).contains(&wait), "{wait}");
    }
}
