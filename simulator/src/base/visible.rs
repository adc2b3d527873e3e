//! `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`: the GPUs that a process sees, and their order.
//!
//! Source: CUDA C++ Programming Guide, "CUDA Environment Variables" (device enumeration and properties).

/// Facts about a GPU that the rules use.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// UUID as NVML writes it: `GPU-8932f937-d72c-4106-c12f-20bd9faed9f6`.
    pub(crate) uuid: String,
    /// Number that "fastest" compares. docs/hardware.md, "visible GPUs": multiprocessors; the documentation says "a simple
    /// heuristic".
    pub(crate) speed: u64,
}

/// Indices of the visible GPUs on the machine, in the process's order.
///
/// `candidates` are in PCI order. The list ends at an entry that matches no GPU, repeats one (docs/hardware.md, "visible
/// GPUs"), or is an ambiguous prefix: "only the devices whose index precedes the invalid index are visible". `MIG-` entries
/// match nothing, as no simulated GPU is partitioned.
pub(crate) fn visible(candidates: &[Candidate], devices: Option<&str>, order: Option<&str>) -> Vec<usize> {
    let mut enumeration: Vec<usize> = (0..candidates.len()).collect();
    if order != Some("PCI_BUS_ID") {
        // The sort is stable: equal GPUs stay in PCI order.
        enumeration.sort_by_key(|&index| core::cmp::Reverse(candidates[index].speed));
    }
    let Some(devices) = devices else {
        return enumeration;
    };
    let mut chosen: Vec<usize> = Vec::new();
    for entry in devices.split(',') {
        let Some(index) = find(candidates, &enumeration, entry.trim()) else {
            break;
        };
        if chosen.contains(&index) {
            break;
        }
        chosen.push(index);
    }
    chosen
}

fn find(candidates: &[Candidate], enumeration: &[usize], entry: &str) -> Option<usize> {
    if let Ok(ordinal) = entry.parse::<usize>() {
        return enumeration.get(ordinal).copied();
    }
    if !entry.get(..4).is_some_and(|prefix| prefix.eq_ignore_ascii_case("GPU-")) {
        return None;
    }
    let entry = entry.to_ascii_lowercase();
    let mut matching = (0..candidates.len())
        .filter(|&index| candidates[index].uuid.to_ascii_lowercase().starts_with(&entry));
    matching.next().filter(|_| matching.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Vec<Candidate> {
        [("GPU-aa11", 10), ("GPU-aa22", 20), ("GPU-bb33", 10)]
            .map(|(uuid, speed)| Candidate { uuid: uuid.to_owned(), speed })
            .to_vec()
    }

    #[track_caller]
    fn check(devices: Option<&str>, order: Option<&str>, expected: &[usize]) {
        assert_eq!(visible(&machine(), devices, order), expected, "{devices:?} {order:?}");
    }

    #[test]
    fn unset_shows_all_and_the_order_decides_the_numbers() {
        check(None, None, &[1, 0, 2]);
        check(None, Some("FASTEST_FIRST"), &[1, 0, 2]);
        check(None, Some("PCI_BUS_ID"), &[0, 1, 2]);
        check(Some("0,2"), None, &[1, 2]);
        check(Some("2,0"), Some("PCI_BUS_ID"), &[2, 0]);
    }

    #[test]
    fn an_unknown_entry_ends_the_list() {
        for (devices, expected) in [
            ("", &[][..]),
            ("-1", &[]),
            ("7", &[]),
            ("2,x,0", &[2]),
            ("1,,0", &[1]),
            ("1,-1,0", &[1]),
            ("0,0", &[0]),
            ("NoDevFiles", &[]),
            ("none", &[]),
            ("void", &[]),
            (" 1 , 2", &[1, 2]),
        ] {
            check(Some(devices), Some("PCI_BUS_ID"), expected);
        }
    }

    #[test]
    fn a_uuid_or_an_unambiguous_prefix_names_a_gpu() {
        for (devices, expected) in [
            ("GPU-bb33", &[2][..]),
            ("GPU-bb", &[2]),
            ("gpu-BB", &[2]),
            ("GPU-aa", &[]),
            ("GPU-bb,GPU-aa2", &[2, 1]),
            ("GPU-", &[]),
            ("GPU-cc", &[]),
            ("MIG-aa11", &[]),
            ("0,MIG-GPU-aa11/0/0,1", &[0]),
        ] {
            check(Some(devices), Some("PCI_BUS_ID"), expected);
        }
    }
}
