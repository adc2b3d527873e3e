//! Tables of columns that fit a width: what matters least is left out first, then texts are cut with an ellipsis.

use super::words::{clipped, clipped_in_the_middle, width};

const GAP: usize = 2;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    is_right: bool,
    /// Width to which its texts may be cut; `None`: never.
    least: Option<usize>,
    /// The higher, the sooner it is left out; 0: never.
    rank: u8,
    /// Whether its texts are cut in the middle, and if its rank is 0, only once other columns are left out.
    is_telling: bool,
}

impl Column {
    /// A column of figures, which are never cut. Where the width does not suffice, those of the highest `rank` are left out first; 0:
    /// never.
    pub(crate) const fn figure(title: &'static str, rank: u8) -> Column {
        Column { title, is_right: true, least: None, rank, is_telling: false }
    }

    /// A column of words, which may be cut to `least` columns.
    pub(crate) const fn words(title: &'static str, rank: u8, least: usize) -> Column {
        Column { title, is_right: false, least: Some(least), rank, is_telling: false }
    }

    /// A column of names that tell the rows apart: they are cut in the middle, to `least` columns; those of rank 0 only once all
    /// columns that may be left out are.
    pub(crate) const fn telling(title: &'static str, rank: u8, least: usize) -> Column {
        Column { is_telling: true, ..Column::words(title, rank, least) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Below 80 %.
    Normal,
    /// From 80 %.
    High,
    /// From 95 %.
    Full,
}

impl Load {
    pub(crate) fn of(percent: u64) -> Load {
        match percent {
            0..80 => Load::Normal,
            80..95 => Load::High,
            _ => Load::Full,
        }
    }

    /// ANSI code of its colour: green, yellow, red.
    fn color(self) -> u8 {
        match self {
            Load::Normal => 32,
            Load::High => 33,
            Load::Full => 31,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    load: Option<Load>,
}

impl Cell {
    pub(crate) fn loaded(text: String, load: Option<Load>) -> Cell {
        Cell { text, load }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell { text, load: None }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::from(text.to_owned())
    }
}

#[derive(Debug)]
enum Row {
    Cells(Vec<Cell>),
    /// A text over all columns, set in by some.
    Text(usize, String),
}

#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

impl Table {
    pub(crate) fn new(columns: &[Column]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row: one cell for each column.
    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(Row::Cells(cells.into()));
    }

    /// Adds a row of one text over all columns, set in by `indent`.
    pub(crate) fn text(&mut self, indent: usize, text: impl Into<String>) {
        self.rows.push(Row::Text(indent, text.into()));
    }

    /// The heading and the rows, each at most `limit` columns wide.
    pub(crate) fn lines(&self, limit: usize, is_colored: bool) -> Vec<String> {
        let shown = self.shown(limit);
        let heading: Vec<Cell> = self.columns.iter().map(|column| Cell::from(column.title)).collect();
        let mut lines = vec![self.line(&heading, &shown, limit, false)];
        for row in &self.rows {
            lines.push(match row {
                Row::Cells(cells) => self.line(cells, &shown, limit, is_colored),
                Row::Text(indent, text) => clipped(&format!("{:indent$}{text}", ""), limit),
            });
        }
        lines
    }

    /// Columns that are shown, by place, each with its width.
    fn shown(&self, limit: usize) -> Vec<(usize, usize)> {
        let wanted: Vec<usize> = (0..self.columns.len()).map(|place| self.wanted(place)).collect();
        let column = |place: usize| self.columns.get(place);
        let least = |place: usize, is_telling_whole: bool| {
            let wanted = wanted.get(place).copied().unwrap_or(0);
            let is_whole = |column: &Column| is_telling_whole && column.is_telling && column.rank == 0;
            let cut = column(place).filter(|column| !is_whole(column));
            cut.and_then(|column| column.least).map_or(wanted, |least| least.min(wanted))
        };
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let needed = |shown: &[usize], is_telling_whole: bool| {
            let widths = shown.iter().map(|place| least(*place, is_telling_whole) + GAP);
            widths.sum::<usize>().saturating_sub(GAP)
        };
        while needed(&shown, true) > limit {
            let rank = |place: &usize| column(*place).map_or(0, |column| column.rank);
            match shown.iter().copied().max_by_key(rank).filter(|place| rank(place) > 0) {
                Some(last) => shown.retain(|place| *place != last),
                None => break,
            }
        }
        let is_whole = needed(&shown, true) <= limit;
        let (least, needed) = (|place: usize| least(place, is_whole), needed(&shown, is_whole));
        let mut widths: Vec<(usize, usize)> = shown.iter().map(|place| (*place, least(*place))).collect();
        let missing = |place: usize| wanted.get(place).copied().unwrap_or(0).saturating_sub(least(place));
        let mut spare = limit.saturating_sub(needed);
        // Short texts are completed first, so that a long one does not cut all others.
        let mut by_need: Vec<&mut (usize, usize)> = widths.iter_mut().collect();
        by_need.sort_by_key(|(place, _)| missing(*place));
        for (place, width) in by_need {
            let more = missing(*place).min(spare);
            *width += more;
            spare -= more;
        }
        widths
    }

    /// Width of the widest text of a column.
    fn wanted(&self, place: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| match row {
            Row::Cells(cells) => cells.get(place).map(|cell| width(&cell.text)),
            Row::Text(..) => None,
        });
        let title = self.columns.get(place).map_or(0, |column| width(column.title));
        cells.max().unwrap_or(0).max(title)
    }

    fn line(&self, cells: &[Cell], shown: &[(usize, usize)], limit: usize, is_colored: bool) -> String {
        let mut line = String::new();
        let mut used = 0_usize;
        for (position, (place, columns)) in shown.iter().enumerate() {
            let (Some(column), Some(cell)) = (self.columns.get(*place), cells.get(*place)) else {
                continue;
            };
            if position > 0 && used + GAP < limit {
                line.push_str(&" ".repeat(GAP));
                used += GAP;
            }
            let columns = (*columns).min(limit.saturating_sub(used));
            let cut = if column.is_telling { clipped_in_the_middle } else { clipped };
            let text = cut(&cell.text, columns);
            let pad = " ".repeat(columns.saturating_sub(width(&text)));
            used += columns;
            let text = match cell.load.filter(|_| is_colored) {
                Some(load) => format!("\x1b[{}m{text}\x1b[0m", load.color()),
                None => text,
            };
            line.push_str(&if column.is_right { pad + &text } else { text + &pad });
        }
        line.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[
            Column::words("NAME", 0, 4),
            Column::figure("MEMORY", 0),
            Column::figure("USED", 2),
            Column::words("POLICY", 1, 3),
        ]);
        table.row([
            "a-long-name".into(),
            "4096MiB".into(),
            Cell::loaded("97%".to_owned(), Some(Load::of(97))),
            "fixed".into(),
        ]);
        table.text(2, "a text over all columns");
        table
    }

    #[test]
    fn what_matters_least_is_left_out_first() {
        let lines = |limit| table().lines(limit, false).join("\n");
        assert_eq!(
            lines(80),
            "NAME          MEMORY  USED  POLICY\na-long-name  4096MiB   97%  fixed\n  a text over all columns"
        );
        assert_eq!(lines(24), "NAME   MEMORY  USED  PO…\na-l…  4096MiB   97%  fi…\n  a text over all colum…");
        assert_eq!(lines(20), "NAME   MEMORY  POLI…\na-l…  4096MiB  fixed\n  a text over all c…");
        assert_eq!(lines(13), "NAME   MEMORY\na-l…  4096MiB\n  a text ove…");
        for limit in 1..60 {
            let all = table().lines(limit, false);
            assert!(all.iter().all(|line| width(line) <= limit), "{limit}: {all:#?}");
        }
    }

    /// Pods' names differ at their ends; a wider terminal never shows less of them.
    #[test]
    fn names_stay_apart_at_any_width() {
        let mut table = Table::new(&[
            Column::telling("TENANT", 0, 8),
            Column::figure("MEMORY", 0),
            Column::figure("USED", 2),
            Column::words("POLICY", 1, 3),
        ]);
        for number in [17, 18] {
            let name = format!("team-a/inference-server-{number}/main");
            table.row([name.into(), "4096MiB".into(), "97%".into(), "fixed".into()]);
        }
        assert_eq!(table.lines(24, false)[1..], ["team-…r-17/main  4096MiB", "team-…r-18/main  4096MiB"]);
        let shown = |limit: usize| {
            let line = table.lines(limit, false).swap_remove(1);
            line.split("  ").next().unwrap().chars().count()
        };
        for limit in 17..80 {
            assert!(shown(limit) <= shown(limit + 1), "{limit}");
        }
    }

    #[test]
    fn colour_does_not_move_a_column() {
        let colored = table().lines(80, true).join("\n");
        assert!(colored.contains("\x1b[31m97%\x1b[0m"), "{colored:?}");
        let plain = colored.replace("\x1b[31m", "").replace("\x1b[0m", "");
        assert_eq!(plain, table().lines(80, false).join("\n"));
    }
}
