//! Text of the demo: on stdout, or on stderr if stdout has the JSON of the checks.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};

use vcuda_cli::failure::Failure;

/// Destination of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    is_json: bool,
}

impl Output {
    pub(crate) fn new(is_json: bool) -> Output {
        Output { is_json }
    }

    /// Whether stdout has JSON.
    pub(crate) fn is_json(self) -> bool {
        self.is_json
    }

    /// Whether the table may be redrawn in place.
    pub(crate) fn is_terminal(self) -> bool {
        !self.is_json && io::stdout().is_terminal()
    }

    /// Writes `text` as it is.
    pub(crate) fn write(self, text: impl Display) -> Result<(), Failure> {
        if self.is_json {
            // With a closed stderr only the text is lost.
            let _ = write!(io::stderr(), "{text}");
            return Ok(());
        }
        let mut out = io::stdout().lock();
        write!(out, "{text}")?;
        Ok(out.flush()?)
    }

    /// Writes a line.
    pub(crate) fn say(self, text: impl Display) -> Result<(), Failure> {
        self.write(format_args!("{text}\n"))
    }
}
