//! From a command line to an exit status, for `vcuda` and for the program that carries out some of its commands.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

use crate::failure::Failure;

/// Parses the command line, hands it to `carry_out`, and says on stderr, in one line, why that failed.
pub fn run<P: Parser>(carry_out: impl FnOnce(P) -> Result<(), Failure>) -> ExitCode {
    ending(match P::try_parse() {
        Ok(line) => carry_out(line),
        Err(error) => usage(&error),
    })
}

/// The one line on stderr and the status. Every failure ends here.
fn ending(outcome: Result<(), Failure>) -> ExitCode {
    let Err(failure) = outcome else {
        return ExitCode::SUCCESS;
    };
    let message = failure.to_string();
    if !message.is_empty() {
        // A closed stderr must not turn one failure into another.
        let _ = writeln!(std::io::stderr(), "vcuda: {message}");
    }
    ExitCode::from(&failure)
}

/// Result of clap's parsing: help and version are answers; the rest is wrong use, said in one line.
fn usage(error: &clap::Error) -> Result<(), Failure> {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(error.print()?),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::Usage("what shall I do? Try `vcuda --help`".to_owned()))
        }
        _ => Err(Failure::Usage(one_line(&error.to_string()))),
    }
}

/// clap's message is a paragraph, then tips and usage; its first paragraph names the value and what is wrong with it.
fn one_line(message: &str) -> String {
    let paragraph = message.split("\n\n").next().unwrap_or(message);
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let line = words.join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    if line.ends_with("not provided: <CMD>...") {
        return "no command to run; write it after `--`, for example: vcuda run --memory 4GiB -- python train.py".to_owned();
    }
    // Its usage follows in `message`: the commands whose command stands behind `--`.
    if line.starts_with("unexpected argument") && !line.contains("'-") && message.contains("-- <CMD>") {
        return format!("{line}; if it is the command to run, write it after `--` (see --help)");
    }
    format!("{line} (see --help)")
}
