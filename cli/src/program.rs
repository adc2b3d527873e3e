//! Main function of `vcuda` and `vcuda-bench`, from command line to exit status.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

use crate::failure::Failure;

/// Parses the command line and calls `carry_out`. A failure becomes one line on stderr.
pub fn run<P: Parser>(carry_out: impl FnOnce(P) -> Result<(), Failure>) -> ExitCode {
    ending(match P::try_parse() {
        Ok(line) => carry_out(line),
        Err(error) => usage(&error),
    })
}

/// Exit status of an outcome; a failure is printed as one line.
pub fn ending(outcome: Result<(), Failure>) -> ExitCode {
    let Err(failure) = outcome else {
        return ExitCode::SUCCESS;
    };
    let message = failure.to_string();
    if !message.is_empty() {
        // A failure to write to stderr does not change the exit status.
        let _ = writeln!(std::io::stderr(), "vcuda: {message}");
    }
    ExitCode::from(&failure)
}

/// Outcome of a parse that did not yield a command: help and version succeed; all else is a usage error of one line.
fn usage(error: &clap::Error) -> Result<(), Failure> {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(error.print()?),
        // The help is the message.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.print()?;
            Err(Failure::Usage(String::new()))
        }
        _ => Err(Failure::Usage(one_line(&error.to_string()))),
    }
}

/// The first paragraph of clap's message, which names the value and the error, as one line.
fn one_line(message: &str) -> String {
    let paragraph = message.split("\n\n").next().unwrap_or(message);
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let line = words.join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    if line.ends_with("not provided: <CMD>...") {
        let example = match message.contains("vcuda sim") {
            true => "vcuda sim -- ./program",
            false => "vcuda run --memory 4GiB -- python train.py",
        };
        return format!("no command to run; write it after `--`, for example: {example}");
    }
    // Only the usage of commands that take a command after `--` contains this text.
    if line.starts_with("unexpected argument") && !line.contains("'-") && message.contains("-- <CMD>") {
        return format!("{line}; if it is the command to run, write it after `--` (see --help)");
    }
    match of_nvidia_smi(message).or_else(|| similar(message)) {
        Some(tip) => format!("{line}; {tip}"),
        None => format!("{line} (see --help)"),
    }
}

/// What `vcuda smi` has in place of an argument of nvidia-smi.
fn of_nvidia_smi(message: &str) -> Option<&'static str> {
    let has = |argument: &str| message.contains(&format!("unexpected argument '{argument}'"));
    match message {
        _ if !message.contains("Usage: vcuda smi") => None,
        _ if has("-x") || has("--xml-format") => Some("there is no XML: --json tells all"),
        _ if has("-d") || has("--display") => Some("-q tells all of a GPU, --query-gpu=FIELDS a part"),
        _ if has("-s") || has("--select") => {
            Some("every column is shown: cut them, or smi --query-gpu=FIELDS -l 1")
        }
        _ => None,
    }
}

/// Clap's tip of a similar word, if there is one.
fn similar(message: &str) -> Option<&str> {
    let mut tips = message.lines().filter_map(|line| line.trim().strip_prefix("tip: "));
    tips.find(|tip| tip.contains("similar"))
}
