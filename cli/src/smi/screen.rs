//! `vcuda smi --watch` on a terminal: the table on the alternate screen, which the terminal restores at the end.

use std::io::{self, Write as _};
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};

use crate::ended::Ended;
use crate::failure::Failure;

/// The alternate screen. The terminal is restored when this is dropped.
#[derive(Debug)]
pub(crate) struct Screen {
    ended: Ended,
}

impl Screen {
    pub(crate) fn enter() -> Result<Screen, Failure> {
        let ended = Ended::listen()?;
        enable_raw_mode()?;
        let screen = Screen { ended };
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    pub(crate) fn draw(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        // A terminal without a size, as on a serial line, counts as one of 24 rows.
        let rows = size().map_or(0, |(_, rows)| usize::from(rows));
        let height = if rows == 0 { 24 } else { rows };
        let all = text.lines().count();
        let shown = if all > height { height - 1 } else { all };
        queue!(out, MoveTo(0, 0))?;
        for line in text.lines().take(shown) {
            write!(out, "{line}")?;
            queue!(out, Clear(ClearType::UntilNewLine))?;
            write!(out, "\r\n")?;
        }
        queue!(out, Clear(ClearType::FromCursorDown))?;
        if all > shown {
            write!(out, "… {} more lines; a taller window shows them", all - shown)?;
        }
        Ok(out.flush()?)
    }

    /// Waits for a key for at most `wait`, or for a signal that ends the command. Returns whether to go on.
    pub(crate) fn wait(&self, wait: Duration) -> Result<bool, Failure> {
        if !self.ended.poll(wait)? {
            return Ok(!self.ended.is_so());
        }
        Ok(match event::read()? {
            Event::Key(key) => !matches!(
                (key.code, key.modifiers.contains(KeyModifiers::CONTROL)),
                (KeyCode::Char('q') | KeyCode::Esc, _) | (KeyCode::Char('c'), true)
            ),
            _ => true,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
        self.ended.finish();
    }
}
