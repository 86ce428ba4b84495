//! Manual pages and shell completions, generated from the command line's definition. The program contains the
//! generators: they are small, a container or a wheel then has them too, and packaging compiles nothing.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

/// `moonshard completions` and `moonshard man`.
pub fn commands() -> [Command; 2] {
    let shell = Arg::new("SHELL").required(true).value_parser(value_parser!(Shell)).help("Name of the shell");
    let directory = Arg::new("DIR")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("Directory, which is created if necessary");
    [
        Command::new("completions").about("Print a shell completion script").arg(shell),
        Command::new("man").about("Write the manual pages to a directory").arg(directory),
    ]
}

/// The script that `moonshard completions` prints.
pub fn completions(mut command: Command, matches: &ArgMatches) -> String {
    let shell = *matches.get_one::<Shell>("SHELL").expect("clap requires it");
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    String::from_utf8(script).expect("clap generates text")
}

/// Where `moonshard man` writes.
pub fn directory(matches: &ArgMatches) -> PathBuf {
    matches.get_one::<PathBuf>("DIR").cloned().expect("clap requires it")
}

/// Writes a page for the program and one for each of its subcommands.
pub fn write_manual(command: Command, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(command, directory)
}

#[cfg(test)]
mod tests {
    use super::super::command;
    use super::*;

    #[test]
    fn shells_complete_commands_and_options() {
        for shell in ["bash", "zsh", "fish"] {
            let matches = command().get_matches_from(["moonshard", "completions", shell]);
            let script =
                completions(command(), matches.subcommand_matches("completions").expect("it is one"));
            assert!(["topology", "maxmemory-policy"].iter().all(|word| script.contains(word)), "{shell}");
        }
    }

    #[test]
    fn each_command_has_a_page() {
        let directory = std::env::temp_dir().join(format!("moonshard-man-{}", std::process::id()));
        write_manual(command(), &directory).expect("written");
        // Hyphens are escaped.
        let page = |name| std::fs::read_to_string(directory.join(name)).expect(name).replace('\\', "");
        assert!(page("moonshard.1").contains("moonshard-topology(1)"));
        assert!(page("moonshard-serve.1").contains("--maxmemory-policy"));
        assert!(page("moonshard-topology-move.1").contains("--slots"));
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
