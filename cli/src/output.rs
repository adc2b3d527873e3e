//! Width and colours of what is printed on stdout.

use std::io::{self, IsTerminal as _, Write as _};

use crate::config::Environment;
use crate::failure::Failure;
use crate::render::WIDTH;

/// Least and greatest width of a table (columns).
const WIDTHS: (usize, usize) = (40, 200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) is_terminal: bool,
    /// Width of tables: the terminal's, else `COLUMNS`, else 80 columns.
    pub(crate) width: usize,
    /// Whether it shows colours: on a terminal, unless `NO_COLOR` is set.
    pub(crate) is_colored: bool,
}

impl Output {
    /// Appearance of stdout now: a terminal's width may change.
    pub(crate) fn find(environment: &Environment) -> Output {
        let is_terminal = io::stdout().is_terminal();
        let terminal = crossterm::terminal::size()
            .ok()
            .filter(|(columns, _)| is_terminal && *columns > 0)
            .map(|(columns, _)| usize::from(columns));
        Output {
            is_terminal,
            width: terminal.or(environment.columns).unwrap_or(WIDTH).clamp(WIDTHS.0, WIDTHS.1),
            is_colored: is_terminal && !environment.is_colorless,
        }
    }
}

/// Prints a warning on stderr.
pub(crate) fn warn(words: &str) -> Result<(), Failure> {
    Ok(writeln!(io::stderr(), "vcuda: {words}")?)
}
