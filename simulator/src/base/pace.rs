//! Duration of a kernel. Kernels compute nothing here and only take time.
//!
//! A kernel named `vcuda_spin_ns` runs for its first argument in nanoseconds; one named `vcuda_work` does that many
//! iterations at the configured rate. Others have a configured duration, by name or growing with the grid. An argument of 0
//! means no time. A kernel whose name ends with `vcuda_meet` spins until its peers do, as collective kernels do; one named
//! `vcuda_fed` until the host has written a word.

use vcuda_machine::Config;

/// Source of a kernel's duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Nanoseconds in the first argument.
    Spin,
    /// Iterations in the first argument.
    Work {
        /// Duration of an iteration (ns).
        iteration_ns: u64,
    },
    /// Until all peers have begun, and then for some time. The first argument has 32 bits of nanoseconds, 16 of the
    /// rendezvous's number, 8 of the number of peers.
    Rendezvous,
    /// Until the 32-bit word of host memory at the first argument is not 0.
    Fed,
    /// The same for all launches.
    Fixed {
        /// The duration (ns); `u64::MAX` never ends.
        duration_ns: u64,
    },
    /// Growing with the grid.
    Grid {
        /// The fixed part (ns).
        fixed_ns: u64,
        /// The additional time for each wave of blocks (ns).
        wave_ns: u64,
    },
}

impl Pace {
    /// The pace of kernels with this name.
    pub(crate) fn of(config: &Config, name: &str) -> Pace {
        let kernels = &config.kernels;
        if config.faults.never_ending_kernels.iter().any(|never| never == name) {
            return Pace::Fixed { duration_ns: u64::MAX };
        }
        if let Some(duration_ns) = kernels.duration_ns.get(name) {
            return Pace::Fixed { duration_ns: *duration_ns };
        }
        match name {
            "vcuda_spin_ns" => Pace::Spin,
            "vcuda_fed" => Pace::Fed,
            name if name.ends_with("vcuda_meet") => Pace::Rendezvous,
            "vcuda_work" => Pace::Work { iteration_ns: kernels.work_ns_per_iteration },
            _ => Pace::Grid { fixed_ns: kernels.default_ns, wave_ns: kernels.default_ns_per_wave },
        }
    }

    /// Whether the duration depends on the first argument.
    pub(crate) fn needs_argument(self) -> bool {
        matches!(self, Pace::Spin | Pace::Work { .. } | Pace::Rendezvous | Pace::Fed)
    }

    /// Duration of a launch of `blocks` blocks on a GPU of `sms` multiprocessors (ns).
    pub(crate) fn duration_ns(self, blocks: u64, sms: u32, argument: u64) -> u64 {
        match self {
            // The largest value means "never ends" to the machine, and cannot be requested by an argument.
            Pace::Spin => argument.min(u64::MAX - 1),
            // As a graph node it has no peers, and waits for no word.
            Pace::Rendezvous => argument & u64::from(u32::MAX),
            Pace::Fed => 0,
            Pace::Work { iteration_ns } => argument.saturating_mul(iteration_ns).min(u64::MAX - 1),
            Pace::Fixed { duration_ns } => duration_ns,
            Pace::Grid { fixed_ns, wave_ns } => {
                let waves = blocks.div_ceil(u64::from(sms.max(1)));
                waves.saturating_mul(wave_ns).saturating_add(fixed_ns).min(u64::MAX - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_decides_and_the_configuration_goes_first() {
        let mut config = Config::with_gpus(1, 1 << 30);
        assert_eq!(Pace::of(&config, "vcuda_spin_ns"), Pace::Spin);
        assert!(matches!(Pace::of(&config, "matmul"), Pace::Grid { .. }));
        config.kernels.duration_ns.insert("matmul".to_owned(), 7);
        config.faults.never_ending_kernels.push("hang".to_owned());
        assert_eq!(Pace::of(&config, "matmul"), Pace::Fixed { duration_ns: 7 });
        assert_eq!(Pace::of(&config, "hang"), Pace::Fixed { duration_ns: u64::MAX });
    }

    #[test]
    fn durations_follow_arguments_and_grids() {
        assert_eq!(Pace::Spin.duration_ns(1, 132, 0), 0);
        assert_eq!(Pace::Spin.duration_ns(1, 132, 5000), 5000);
        assert_eq!(Pace::Work { iteration_ns: 3 }.duration_ns(9, 132, 10), 30);
        let grid = Pace::Grid { fixed_ns: 100, wave_ns: 10 };
        assert_eq!(grid.duration_ns(132, 132, 0), 110);
        assert_eq!(grid.duration_ns(133, 132, 0), 120);
        assert_eq!(grid.duration_ns(u64::MAX, 1, 0), u64::MAX - 1);
    }
}
