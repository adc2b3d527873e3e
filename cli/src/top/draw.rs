//! Drawing of `vcuda top`: title, table, and a line for prompts and notes.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::rows::{Kind, Row};
use super::screen::{Mode, Screen};
use crate::render::columns::Load;
use crate::render::words::clipped;

/// The keys, as `?` lists them.
const HELP: &str = "\
q, Esc    end
↑ ↓       select a tenant or a process
/         filter by a part of a name; Enter keeps it, Esc drops it
p         show or hide processes
c m %     sort by GPU time, memory, part of the memory quota
d n       sort by denied allocations, name
e         change the selected tenant's quota, as `vcuda set` does
k         end the selected process (SIGTERM); asks first
?         this list; any key closes it";
/// The most used keys.
const HINTS: &str = "? keys   q end   ↑↓ select   / filter   e quota   k end process   p processes";

pub(super) fn screen(frame: &mut Frame<'_>, screen: &Screen) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    let width = usize::from(head.width);
    let title = clipped(&format!("vcuda top  {}", screen.source), width);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Line::from(Span::styled(title, bold)), head);
    frame.render_widget(foot_line(screen, width), foot);
    if matches!(screen.mode, Mode::Help) {
        let lines: Vec<Line<'_>> = HELP.lines().map(|line| Line::from(clipped(line, width))).collect();
        frame.render_widget(Paragraph::new(lines), body);
    } else {
        table(frame, body, screen);
    }
}

/// The prompt, the note, or the most used keys.
fn foot_line(screen: &Screen, width: usize) -> Line<'static> {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let (text, style) = match (&screen.mode, screen.note.as_ref().or(screen.problem.as_ref())) {
        (Mode::Filter, _) => (format!("filter: {}_", screen.selection.filter), Style::new()),
        (Mode::Quota { name, typed }, _) => {
            (format!("quota of {name} (such as --memory 6GiB --cores 50): {typed}_"), Style::new())
        }
        (Mode::End(_, words), _) => {
            (format!("end process {words}? y: yes, any other key: no"), Style::new().fg(Color::Red))
        }
        (_, Some(note)) => (note.clone(), Style::new().fg(Color::Yellow)),
        (_, None) if !screen.selection.filter.is_empty() => {
            (format!("filter: {}   {HINTS}", screen.selection.filter), dim)
        }
        (_, None) => (HINTS.to_owned(), dim),
    };
    Line::from(Span::styled(clipped(&text, width), style))
}

/// Draws as many rows as fit, so that the selected one is seen.
fn table(frame: &mut Frame<'_>, body: Rect, screen: &Screen) {
    let (rows, selected) = screen.rows(usize::from(body.width));
    let height = usize::from(body.height);
    let first = selected.map_or(0, |place| (place + 1).saturating_sub(height));
    let shown = rows.into_iter().enumerate().skip(first).take(height);
    let lines: Vec<Line<'_>> = shown.map(|(place, row)| line(row, Some(place) == selected)).collect();
    frame.render_widget(Paragraph::new(lines), body);
}

fn line(row: Row, is_selected: bool) -> Line<'static> {
    let style = match row.kind {
        Kind::Title => Style::new().add_modifier(Modifier::BOLD),
        Kind::Heading => Style::new().add_modifier(Modifier::DIM),
        Kind::Figures(Load::Normal) => Style::new(),
        Kind::Figures(Load::High) => Style::new().fg(Color::Yellow),
        Kind::Figures(Load::Full) => Style::new().fg(Color::Red),
        Kind::Detail => Style::new().fg(Color::Cyan),
    };
    let style = if is_selected { style.add_modifier(Modifier::REVERSED) } else { style };
    Line::from(Span::styled(row.text, style))
}

#[cfg(test)]
mod tests;
