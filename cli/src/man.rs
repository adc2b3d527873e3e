//! Man pages of vcuda and its commands: the help, and its examples as a section.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::args::Cli;
use crate::failure::Failure;

/// Begin of each command's examples in its help.
const EXAMPLES: &str = "Examples:\n";

/// Prints the page of the command that `words` name: of vcuda itself if there are none.
pub(crate) fn print(words: &[String]) -> Result<(), Failure> {
    let mut command = whole();
    for word in words {
        let found = command
            .get_subcommands()
            .find(|command| command.get_name() == word && !command.is_hide_set());
        command = found.cloned().ok_or_else(|| {
            Failure::Usage(format!(
                "man {}: no such command; see `vcuda --help`",
                words.join(" ")
            ))
        })?;
    }
    Ok(io::stdout().write_all(&page(&command)?)?)
}

/// Writes the pages of vcuda and of all its commands into `folder`.
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
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    let before = command.get_before_help().map(ToString::to_string);
    if let Some((_, examples)) = before.as_deref().and_then(|help| help.split_once(EXAMPLES)) {
        // A line that begins with a dot would be a request: all begin with spaces.
        let escaped = examples.replace('\\', "\\e").replace('-', "\\-");
        write!(page, ".SH EXAMPLES\n.nf\n{escaped}\n.fi\n")?;
    }
    Ok(page)
}
