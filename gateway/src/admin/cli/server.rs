//! How a command line names a server, and how it authenticates to it.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, value_parser};
use tls::{Clients, Files, Roots};

use crate::admin::script::ServerAddress;
use crate::config::Address;

/// The port of a URL without one.
const PORT: u16 = 6379;

/// What a URL of a server looks like, for help texts.
pub const URL_FORM: &str = "redis://[USER:PASSWORD@]HOST[:PORT], or rediss:// for TLS";

/// The options beside a URL.
pub fn options() -> [Arg; 4] {
    let file = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
    };
    [
        file(
            "password-file",
            "File whose first line is the password [default: the environment variable REDISCLI_AUTH]",
        ),
        file(
            "tls-ca-cert-file",
            "Certificate authorities that the server's certificate must be signed by, for rediss:// [default: those of the system]",
        ),
        file("tls-cert-file", "Client certificate to present").requires("tls-key-file"),
        file("tls-key-file", "Private key of that certificate").requires("tls-cert-file"),
    ]
}

/// The server of a URL and of the options beside it.
pub fn address(url: &str, matches: &ArgMatches) -> Result<ServerAddress, String> {
    let file = |name| matches.get_one::<PathBuf>(name).cloned();
    let Url { is_tls, user, password, address } = Url::parse(url)?;
    let tls = match (is_tls, file("tls-ca-cert-file")) {
        (false, None) => None,
        (false, Some(_)) => return Err("--tls-ca-cert-file requires a rediss:// URL".to_owned()),
        (true, file_of_roots) => {
            let roots = file_of_roots.map(|file| Ok(Roots::File(file))).unwrap_or_else(Roots::of_system);
            let roots = Some(roots.map_err(|error| error.to_string())?);
            let own = file("tls-cert-file").zip(file("tls-key-file"));
            Some(Files { own, roots, clients: Clients::Anyone })
        }
    };
    Ok(ServerAddress { address, user, password, password_file: file("password-file"), tls })
}

struct Url {
    is_tls: bool,
    user: Option<String>,
    password: Option<String>,
    address: Address,
}

impl Url {
    /// The text is not repeated in errors, since it may have a password.
    fn parse(text: &str) -> Result<Url, String> {
        let wrong = || "the URL is invalid, expected redis://[USER:PASSWORD@]HOST[:PORT]".to_owned();
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let is_tls = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err(wrong()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, place) =
            rest.rsplit_once('@').map_or((None, rest), |(login, place)| (Some(login), place));
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None => (None, None),
            Some((user, password)) => {
                let (user, password) =
                    (decoded(user).ok_or_else(wrong)?, decoded(password).ok_or_else(wrong)?);
                (Some(user).filter(|user| !user.is_empty()), Some(password).filter(|text| !text.is_empty()))
            }
        };
        let has_port = place.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let place = if has_port { place.to_owned() } else { format!("{place}:{PORT}") };
        Ok(Url { is_tls, user, password, address: Address::parse(&place).ok_or_else(wrong)? })
    }
}

/// Without percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_user_password_and_address() {
        let parsed = |text: &str| {
            let url = Url::parse(text).ok()?;
            Some(format!("{} {:?} {:?} {}", url.is_tls, url.user, url.password, url.address))
        };
        for (text, wanted) in [
            ("redis://a", Some(r#"false None None a:6379"#)),
            ("redis://a:1/", Some(r#"false None None a:1"#)),
            ("rediss://[::1]", Some(r#"true None None [::1]:6379"#)),
            ("rediss://[::1]:7", Some(r#"true None None [::1]:7"#)),
            ("redis://u:p%40%3a@a:1", Some(r#"false Some("u") Some("p@:") a:1"#)),
            ("redis://:p@a:1", Some(r#"false None Some("p") a:1"#)),
            ("redis://u@a:1", Some(r#"false Some("u") None a:1"#)),
            ("redis://u:%4@a:1", None),
            ("http://a:1", None),
            ("redis://", None),
            ("a:1", None),
        ] {
            assert_eq!(parsed(text).as_deref(), wanted, "{text}");
        }
    }
}
