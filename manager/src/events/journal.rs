//! The kept events in a file, so that a restart of the manager forgets none of them: a line of JSON for each.
//!
//! A file that is lost, damaged or cannot be written costs events of the past, and nothing else.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use super::{Event, KEPT};
use crate::checked_file::replace_until_reboot;

/// Name of the file.
const FILE: &str = "events.jsonl";

#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    file: File,
    lines: usize,
}

impl Journal {
    /// Opens or makes the file in `folder`. Returns its last [`KEPT`] events, too; lines that are none are left out.
    pub(super) fn open(folder: &Path) -> io::Result<(Journal, VecDeque<Event>)> {
        let mut events = VecDeque::new();
        match File::open(folder.join(FILE)) {
            Ok(file) => {
                for line in BufReader::new(file).split(b'\n') {
                    events.extend(serde_json::from_slice::<Event>(&line?).ok());
                    if events.len() > KEPT {
                        events.pop_front();
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok((Journal::written(folder, &events)?, events))
    }

    /// A new file with these events in place of the one that is there.
    fn written(folder: &Path, events: &VecDeque<Event>) -> io::Result<Journal> {
        let path = folder.join(FILE);
        let lines: io::Result<Vec<Vec<u8>>> = events.iter().map(line).collect();
        replace_until_reboot(folder, "events.new", &path, &lines?.concat())?;
        Ok(Journal {
            folder: folder.to_owned(),
            file: OpenOptions::new().append(true).open(path)?,
            lines: events.len(),
        })
    }

    /// Adds the last one of `events`; the file begins anew with all of them once it has twice as many lines as are kept.
    pub(super) fn add(&mut self, events: &VecDeque<Event>) -> io::Result<()> {
        if self.lines >= 2 * KEPT {
            *self = Journal::written(&self.folder, events)?;
        } else if let Some(event) = events.back() {
            self.file.write_all(&line(event)?)?;
            self.lines += 1;
        }
        Ok(())
    }
}

fn line(event: &Event) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::super::{Events, Report, Severity};
    use super::*;

    fn report(tenant: &str) -> Report {
        Report {
            severity: Severity::Warning,
            reason: "VcudaMemoryDenied".into(),
            message: "denied\nin two lines".to_owned(),
            tenant: Some(tenant.to_owned()),
            gpu: None,
            host_pid: Some(7),
        }
    }

    #[test]
    fn a_restart_forgets_no_event_and_goes_on_counting() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let before = Events::default();
        before.report(report("early"));
        before.keep_in(&root);
        before.report(report("late"));
        drop(before);
        // A power failure left half a line.
        let mut file = OpenOptions::new().append(true).open(root.join(FILE)).unwrap();
        file.write_all(b"{\"number\":3,").unwrap();

        let after = Events::default();
        after.report(report("new"));
        after.keep_in(&root);
        let (kept, _) = after.listen(0);
        let told: Vec<_> =
            kept.iter().map(|event| (event.number, event.report.tenant.as_deref().unwrap())).collect();
        assert_eq!(told, [(1, "early"), (2, "late"), (3, "new")]);
        assert_eq!(kept[0].report, report("early"));
    }

    #[test]
    fn the_file_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let events = Events::default();
        events.keep_in(folder.path());
        for number in 0..2 * KEPT + 10 {
            events.report(report(&number.to_string()));
        }
        let text = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert_eq!(text.lines().count(), KEPT + 9);
        let (kept, _) = events.listen(0);
        let again = Events::default();
        again.keep_in(folder.path());
        assert_eq!(again.listen(0).0, kept);
    }

    /// Such as on a full disk.
    #[test]
    fn without_a_file_events_are_told_as_ever() {
        let events = Events::default();
        events.keep_in(Path::new("/proc"));
        events.report(report("a"));
        assert_eq!(events.listen(0).0.len(), 1);
    }
}
