//! Man pages of vcuda and its commands: the help, and its examples as a section.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};
use clap_mangen::Man;

use crate::args::Cli;
use crate::failure::Failure;

/// Begin of each command's examples in its help.
const EXAMPLES: &str = "Examples:\n";

/// Prints the page of the command that `words` name: of vcuda itself if there are none.
pub(crate) fn print(words: &[String]) -> Result<(), Failure> {
    let mut command = whole();
    for word in words {
        let found =
            command.get_subcommands().find(|command| command.get_name() == word && !command.is_hide_set());
        command = found.cloned().ok_or_else(|| {
            Failure::Usage(format!("man {}: no such command; see `vcuda --help`", words.join(" ")))
        })?;
    }
    Ok(io::stdout().write_all(&page(&command)?)?)
}

pub(crate) fn write_all(folder: &Path) -> Result<(), Failure> {
    write(&whole(), folder).map_err(|error| Failure::output("write", folder, &error))
}

fn write(command: &Command, folder: &Path) -> io::Result<()> {
    for of_command in command.get_subcommands().filter(|found| !found.is_hide_set()) {
        write(of_command, folder)?;
    }
    let name = Man::new(command.clone()).get_filename();
    fs::write(folder.join(name), page(command)?)
}

fn whole() -> Command {
    let mut whole = Cli::command().disable_help_subcommand(true);
    whole.build();
    whole
}

/// The page in roff (man(7)).
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut rendered = Vec::new();
    // Only vcuda itself has a version.
    let source = concat!("vcuda ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone().override_usage(synopsis(command))).source(source).render(&mut rendered)?;
    // The generator has no other name for the text after the help.
    let page = String::from_utf8_lossy(&rendered).replacen(".SH EXTRA\n", ".SH NOTES\n", 1);
    let mut page = page.into_bytes();
    let before = command.get_before_help().map(ToString::to_string);
    if let Some((_, examples)) = before.as_deref().and_then(|help| help.split_once(EXAMPLES)) {
        // A line that begins with a dot would be a request: all begin with spaces.
        let escaped = examples.replace('\\', "\\e").replace('-', "\\-");
        write!(page, ".SH EXAMPLES\n.nf\n{escaped}\n.fi\n")?;
    }
    Ok(page)
}

/// The command with its options and their values, such as `vcuda suspend [--help] NAME...`: the generator leaves values out.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let (places, options): (Vec<&Arg>, Vec<&Arg>) = shown.partition(|arg| arg.is_positional());
    let words = options.into_iter().chain(places).map(argument);
    let mut words: Vec<String> = std::iter::once(name.to_owned()).chain(words).collect();
    if command.is_args_conflicts_with_subcommands_set() {
        // A form of its own, without the options.
        words.push(format!("\n{name} COMMAND"));
    } else if command.has_subcommands() {
        words.push("COMMAND".to_owned());
    }
    words.join(" ")
}

/// An argument in a synopsis, such as `[--memory SIZE]`.
fn argument(arg: &Arg) -> String {
    let option = match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => Some(format!("--{long}")),
        (None, Some(short)) => Some(format!("-{short}")),
        (None, None) => arg.is_last_set().then(|| "--".to_owned()),
    };
    let takes_value = arg.get_action().takes_values();
    let values = takes_value.then(|| {
        let names = arg.get_value_names().unwrap_or_default();
        let is_list = arg.get_num_args().is_some_and(|count| count.max_values() > 1);
        names.join(" ") + if is_list { "..." } else { "" }
    });
    let words: Vec<String> = option.into_iter().chain(values).collect();
    let words = words.join(" ");
    if arg.is_required_set() { words } else { format!("[{words}]") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> String {
        let mut command = &whole();
        for word in words {
            command = command.find_subcommand(word).unwrap();
        }
        // As it is read, without the escape of a hyphen.
        let page = page(command).unwrap();
        String::from_utf8(page).unwrap().replace("\\-", "-")
    }

    #[test]
    fn a_page_has_its_version_and_the_values_of_its_options() {
        let run = of(&["run"]);
        assert!(run.contains(concat!("\"vcuda ", env!("CARGO_PKG_VERSION"), "\"")), "{run}");
        for words in ["[--memory SIZE]", "[--policy POLICY]", "[--sim]", "CMD..."] {
            assert!(run.contains(words), "{words}: {run}");
        }
        assert!(of(&["grant", "create"]).contains("[--gpus N]"));
        assert!(of(&["suspend"]).contains(" NAME..."));
        assert!(!of(&["sim"]).contains("CMD... COMMAND"));
    }

    #[test]
    fn no_section_has_a_name_of_the_generator() {
        fn check(command: &Command) {
            let page = String::from_utf8(page(command).unwrap()).unwrap();
            assert!(!page.contains("EXTRA"), "{page}");
            command.get_subcommands().for_each(check);
        }
        check(&whole());
        assert!(of(&["run"]).contains(".SH NOTES"));
    }
}
