//! What a script may use, as its options, its user and the configuration say.

use std::time::Duration;

use script::Budget;
use store_engine::CommandError;

use super::Acl;
use super::limits::{Limit, UserLimits};
use crate::scripts::options::Options;

impl Acl {
    /// What a script with these options may use whose user has these limits. Wishes beyond what these or the configuration allow
    /// are refused.
    pub fn budget_for(&self, options: &Options, limits: &UserLimits) -> Result<Budget, CommandError> {
        let (config, usual) = (&self.config, self.config.budget());
        let granted =
            |requested: Option<u64>, usual: u64, name: &str, most: u64, setting: &str, limit: Limit| {
                let own = limits.get(limit).unwrap_or(u64::MAX);
                let (most, setting) = if own < most { (own, limit.rule()) } else { (most, setting) };
                match requested {
                    Some(requested) if requested > most => {
                        if requested > own {
                            self.note_limit(limit);
                        }
                        Err(CommandError::owned(format!(
                            "ERR The script requests {name}={requested}, but {setting} allows at most {most}"
                        )))
                    }
                    requested => Ok(requested.unwrap_or(usual.min(own))),
                }
            };
        let most = config.script_fuel_max.get();
        let fuel = granted(options.fuel, usual.fuel, "fuel", most, "script-fuel-max", Limit::FuelPerSecond)?;
        let (most, setting) = (config.script_timeout_max_ms.get(), "script-timeout-max-ms");
        let millis = usual.time.as_millis() as u64;
        let millis = granted(options.timeout_ms, millis, "timeout", most, setting, Limit::ScriptTimeoutMs)?;
        let (most, setting) = (config.script_memory_max.get(), "script-memory-max");
        let bytes = usual.memory_bytes as u64;
        let bytes = granted(options.memory_bytes, bytes, "memory", most, setting, Limit::ScriptMemory)?;
        Ok(Budget {
            fuel,
            compile_fuel: usual.fuel.max(fuel).min(limits.get(Limit::FuelPerSecond).unwrap_or(u64::MAX)),
            time: Duration::from_millis(millis),
            memory_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            ..usual
        })
    }
}
