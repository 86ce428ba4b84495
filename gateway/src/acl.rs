//! Users: who may be let in, and what they may do. Sessions hold on to their account, whose rules change under them,
//! so that a change holds from the next call on.

mod budget;
pub mod commands;
pub mod file;
pub mod limits;
pub mod log;
mod meter;
#[cfg(test)]
mod random_tests;
mod selector;
pub mod user;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use store_engine::{Args, Command, CommandError};

use crate::config::{Config, NewUserChannels};

pub use commands::Commands;
use file::{FileError, Users};
use limits::Limit;
use log::Log;
pub use meter::Meter;
pub use selector::{Denied, Selector, allows_channel, has_spaces};
use user::{RuleContext, User};

/// The name of the user that a connection begins as.
pub const DEFAULT: &[u8] = b"default";

/// A user, known to its sessions.
pub struct Account {
    name: Box<[u8]>,
    user: RwLock<Arc<User>>,
    /// What it has used of its limits.
    pub meter: Meter,
    /// Nothing can be refused: looked at before anything else.
    unlimited: AtomicBool,
    /// It is no user any more.
    gone: AtomicBool,
}

impl Account {
    fn new(name: &[u8], user: User) -> Arc<Account> {
        let unlimited = AtomicBool::new(user.is_unlimited());
        let meter = Meter::new();
        meter.set_line(user.limits().get(Limit::ScriptsAtOnce));
        let user = RwLock::new(Arc::new(user));
        Arc::new(Account { name: name.into(), user, meter, unlimited, gone: AtomicBool::new(false) })
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Its rules as they are now.
    pub fn user(&self) -> Arc<User> {
        self.user.read().clone()
    }

    /// Whether nothing is refused it.
    #[inline]
    pub fn is_unlimited(&self) -> bool {
        self.unlimited.load(Ordering::Relaxed)
    }

    /// Whether it is no user any more.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    fn set(&self, user: User) {
        // Whoever reads the flag in between is still held to the old rules or already to the new ones.
        self.unlimited.store(false, Ordering::Relaxed);
        self.meter.set_line(user.limits().get(Limit::ScriptsAtOnce));
        *self.user.write() = Arc::new(user);
        self.update_unlimited();
    }

    fn update_unlimited(&self) {
        self.unlimited.store(self.user().is_unlimited(), Ordering::Relaxed);
    }

    fn end(&self) {
        self.gone.store(true, Ordering::Relaxed);
        self.unlimited.store(false, Ordering::Relaxed);
    }
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its user is gone.
    Gone,
    /// By the user's rules.
    Denied(Denied),
}

/// A rule of ACL SETUSER that is refused.
#[derive(Debug)]
pub enum WrongRule {
    /// The parenthesis with which it begins has no partner.
    Unmatched(Vec<u8>),
    /// It means nothing, for this reason.
    Means(Vec<u8>, selector::Wrong),
}

impl From<WrongRule> for CommandError {
    fn from(wrong: WrongRule) -> CommandError {
        CommandError::owned(match wrong {
            WrongRule::Unmatched(first) => {
                let first = String::from_utf8_lossy(&first);
                format!("ERR Unmatched parenthesis in acl selector starting at '{first}'.")
            }
            WrongRule::Means(rule, why) => {
                let rule = String::from_utf8_lossy(&rule);
                format!("ERR Error in ACL SETUSER modifier '{rule}': {why}")
            }
        })
    }
}

/// All users.
pub struct Acl {
    commands: Commands,
    config: Arc<Config>,
    accounts: RwLock<BTreeMap<Box<[u8]>, Arc<Account>>>,
    default: Arc<Account>,
    /// Whether connections need no password.
    open: AtomicBool,
    /// Store nodes have not sent the users yet.
    unknown: AtomicBool,
    /// Why they have not.
    why_unknown: Mutex<CommandError>,
    /// The password of `default` that the process was started with.
    required: OnceLock<String>,
    /// What was recalled of users last.
    reloaded: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// What was refused.
    pub log: Log,
    /// How often each limit of a user was reached.
    reached: [AtomicU64; Limit::ALL.len()],
}

impl Acl {
    /// The user `default`, which may do everything.
    pub fn new(commands: Commands, config: Arc<Config>) -> Acl {
        let known = RuleContext { commands: &commands, all_channels: false };
        let default = Account::new(DEFAULT, User::unlimited(known));
        let accounts = BTreeMap::from([(DEFAULT.into(), default.clone())]);
        Acl {
            accounts: RwLock::new(accounts),
            default,
            open: AtomicBool::new(true),
            unknown: AtomicBool::new(false),
            why_unknown: Mutex::new(UNKNOWN),
            required: OnceLock::new(),
            reloaded: Mutex::default(),
            log: Log::default(),
            reached: Default::default(),
            commands,
            config,
        }
    }

    /// A user of this process alone, which may do everything and is not among those that clients can be.
    pub fn internal(&self, name: &[u8]) -> Arc<Account> {
        Account::new(name, User::unlimited(self.known()))
    }

    /// What rules are applied to.
    pub fn known(&self) -> RuleContext<'_> {
        RuleContext {
            commands: &self.commands,
            all_channels: self.config.acl_pubsub_default.get() == NewUserChannels::All,
        }
    }

    /// The commands that rules know.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// The user that a connection begins as.
    pub fn default_account(&self) -> &Arc<Account> {
        &self.default
    }

    /// Whether connections need no password.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether a connection that begins now is let in without saying anything.
    pub fn allows_unauthenticated(&self) -> bool {
        self.is_known() && self.is_open()
    }

    /// Says whether the users are known: until then every client is refused.
    fn set_known(&self, known: bool) {
        self.unknown.store(!known, Ordering::Relaxed);
        for account in self.accounts.read().values() {
            match known {
                true => account.update_unlimited(),
                false => account.unlimited.store(false, Ordering::Relaxed),
            }
        }
    }

    /// Refuses every client until the users are known.
    pub fn wait_for_users(&self) {
        self.set_known(false);
    }

    /// Notes why it is not known which users there are.
    pub fn set_why_unknown(&self, why: &CommandError) {
        *self.why_unknown.lock() = why.clone();
    }

    /// The error for sessions until the users are known.
    pub fn why_unknown(&self) -> CommandError {
        self.why_unknown.lock().clone()
    }

    /// Makes this the password of `default` whatever is recalled first; an empty one says nothing.
    pub fn begin_with(&self, password: String) {
        let password = self.required.get_or_init(|| password);
        if !password.is_empty() {
            self.require(password);
        }
    }

    /// Ends the time in which it is not known which users there are.
    pub fn know(&self) {
        if !self.is_known() {
            if let Some(password) = self.required.get().filter(|password| !password.is_empty()) {
                self.require(password);
            }
            self.set_known(true);
        }
    }

    /// Whether it is known which users there are.
    pub fn is_known(&self) -> bool {
        !self.unknown.load(Ordering::Relaxed)
    }

    /// Whether what is kept of a user is news.
    pub fn is_news(&self, name: &[u8], rules: &[u8]) -> bool {
        self.reloaded.lock().insert(name.to_vec(), rules.to_vec()).is_none_or(|before| before != rules)
    }

    /// The user of this name.
    pub fn find(&self, name: &[u8]) -> Option<Arc<Account>> {
        self.accounts.read().get(name).cloned()
    }

    /// All users by name.
    pub fn all(&self) -> Vec<Arc<Account>> {
        self.accounts.read().values().cloned().collect()
    }

    /// The user who may be let in with this password.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<Account>> {
        // How long this takes does not show whether there is such a user.
        let account = self.find(name);
        let known = account.as_ref().unwrap_or(&self.default).user().lets_in(password);
        account.filter(|account| known && !account.is_gone())
    }

    /// What a user would be after these rules.
    pub fn planned<'a>(&self, name: &[u8], rules: impl Iterator<Item = &'a [u8]>) -> Result<User, WrongRule> {
        let rules = user::merged(rules).map_err(WrongRule::Unmatched)?;
        let account = self.find(name);
        let mut user =
            account.map_or_else(|| User::new(self.known()), |account| User::clone(&account.user()));
        user.apply_all(self.known(), &rules).map_err(|(rule, why)| WrongRule::Means(rule, why))?;
        Ok(user)
    }

    /// Makes this the user of this name.
    pub fn put(&self, name: &[u8], user: User) -> Arc<Account> {
        let mut accounts = self.accounts.write();
        self.put_in(&mut accounts, name, user)
    }

    fn put_in(
        &self,
        accounts: &mut BTreeMap<Box<[u8]>, Arc<Account>>,
        name: &[u8],
        user: User,
    ) -> Arc<Account> {
        if name == DEFAULT {
            self.open.store(user.is_open(), Ordering::Relaxed);
        }
        match accounts.get(name) {
            Some(account) => account.set(user),
            None => _ = accounts.insert(name.into(), Account::new(name, user)),
        }
        let account = &accounts[name];
        if !self.is_known() {
            account.unlimited.store(false, Ordering::Relaxed);
        }
        account.clone()
    }

    /// Removes a user; sessions that it had are refused everything from now on.
    pub fn remove(&self, name: &[u8]) -> Option<Arc<Account>> {
        if name == DEFAULT {
            return None;
        }
        self.reloaded.lock().remove(name);
        let account = self.accounts.write().remove(name)?;
        account.end();
        Some(account)
    }

    /// Makes these the users, and `default` what it is from the beginning if it is not among them.
    pub fn replace(&self, mut users: Users) -> Vec<Arc<Account>> {
        users.entry(DEFAULT.into()).or_insert_with(|| User::unlimited(self.known()));
        let mut accounts = self.accounts.write();
        let mut changed = Vec::new();
        accounts.retain(|name, account| {
            let stays = users.contains_key(name);
            if !stays {
                account.end();
                changed.push(account.clone());
            }
            stays
        });
        changed.extend(users.into_iter().map(|(name, user)| self.put_in(&mut accounts, &name, user)));
        changed
    }

    /// `requirepass`: the only password of `default`, or none is needed.
    pub fn require(&self, password: &str) {
        let mut user = User::clone(&self.default.user());
        let rule = if password.is_empty() { "nopass".to_owned() } else { format!(">{password}") };
        for rule in ["resetpass", &rule] {
            user.apply(self.known(), rule.as_bytes()).expect("these rules are right");
        }
        self.put(DEFAULT, user);
    }

    /// Reads users from a file.
    pub fn load(&self, path: &Path) -> Result<Users, FileError> {
        file::load(path, self.known())
    }

    /// Writes all users into a file.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        let all: Vec<_> = self.all().into_iter().map(|account| (account.clone(), account.user())).collect();
        file::save(path, &self.commands, all.iter().map(|(account, user)| (account.name(), &**user)))
    }

    /// Checks a call. `row` is what was called, `spec` the same or its subcommand.
    pub fn check(
        &self,
        account: &Account,
        row: &Command,
        spec: &Command,
        args: Args<'_>,
    ) -> Result<(), Refused> {
        if account.is_gone() {
            return Err(Refused::Gone);
        }
        let user = account.user();
        if user.may_do_everything() {
            return Ok(());
        }
        // A command without a number is allowed only to users that may run all.
        let id = self.commands.of(row, spec).ok_or(Refused::Denied(Denied::Command))?;
        user.check(&self.commands, id, args).map_err(Refused::Denied)
    }

    /// Whether a call is allowed by rules that let it read every key.
    pub fn reads_all_keys(&self, account: &Account, spec: &Command, args: Args<'_>) -> bool {
        let id = self.commands.of(spec, spec);
        let user = account.user();
        user.may_do_everything() || id.is_some_and(|id| user.reads_all_keys(&self.commands, id, args))
    }

    /// Counts that a user has come to a limit.
    pub fn note_limit(&self, limit: Limit) {
        self.reached[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often that happened, by limit.
    pub fn limits_reached(&self) -> impl Iterator<Item = (Limit, u64)> {
        Limit::ALL.into_iter().map(|limit| (limit, self.reached[limit as usize].load(Ordering::Relaxed)))
    }
}

const UNKNOWN: CommandError = CommandError::new(
    "CLUSTERDOWN nothing was done, the users have not been loaded from the store nodes yet",
);
/// What a session says without having been let in.
pub const NOAUTH: CommandError = CommandError::new("NOAUTH Authentication required.");
/// A name or a password that is wrong.
pub const WRONGPASS: CommandError =
    CommandError::new("WRONGPASS invalid username-password pair or user is disabled.");
