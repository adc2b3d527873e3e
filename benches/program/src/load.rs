//! How busy this machine is: on one with more to do than it has processors, times say nothing of vcuda.

/// Runnable threads, averaged over a minute (the first value of `/proc/loadavg`).
pub(crate) fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Reason why times cannot be measured now, if there is one.
pub(crate) fn why_not_measurable() -> Option<String> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    why_not_at(load()?, processors)
}

/// The reason at a load. The programs of `vcuda demo` itself are less than one.
fn why_not_at(load: f64, processors: usize) -> Option<String> {
    let least = u32::try_from(processors).map_or(f64::INFINITY, f64::from);
    (load > least).then(|| format!("load {load:.0} on {processors} processors"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_busy_machine_is_a_reason() {
        assert_eq!(why_not_at(2.0, 2), None);
        assert_eq!(why_not_at(7.1, 2).as_deref(), Some("load 7 on 2 processors"));
    }
}
