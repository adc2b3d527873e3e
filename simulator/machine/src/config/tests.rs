use super::*;

#[test]
fn default_survives_the_file() {
    let mut config = Config::default();
    config.fill(b"/some/where");
    let text = config.to_toml().unwrap();
    assert_eq!(toml::from_str::<Config>(&text).unwrap(), config);
    config.validate().unwrap();
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(toml::from_str::<Config>("").unwrap(), Config::default());
}

#[test]
fn sizes_may_have_units() {
    let config: Config = toml::from_str("context_bytes = '1MiB'\n[[gpus]]\nmemory_bytes = '24GiB'").unwrap();
    assert_eq!(
        (config.context_bytes, config.gpus[0].memory_bytes),
        (1 << 20, 24 << 30)
    );
}

#[test]
fn wrong_values_are_named() {
    for (text, word) in [
        ("slice_ns = 1", "slice_ns = 1 "),
        ("queue_depth = 4096", "queue_depth"),
        ("gpus = []", "gpus = 0"),
        ("[[gpus]]\nuuid = 'GPU-1'", "gpus[0].uuid"),
        ("[[gpus]]\ncompute_capability = 'nine'", "nine"),
        ("[faults]\nfail_nth_allocation = 0", "fail_nth_allocation"),
    ] {
        let config: Config = toml::from_str(text).unwrap();
        let message = config.validate().unwrap_err().to_string();
        assert!(message.contains(word) && !message.contains('\n'), "{message}");
    }
}

#[test]
fn uuids_differ_by_index_and_directory() {
    let uuids = |seed: &[u8]| {
        let mut config = Config::with_gpus(2, 24 << 30);
        config.fill(seed);
        config.validate().unwrap();
        config.gpus.iter().map(|gpu| gpu.uuid.clone()).collect::<Vec<_>>()
    };
    let (a, b) = (uuids(b"a"), uuids(b"b"));
    assert_ne!(a[0], a[1]);
    assert_ne!(a[0], b[0]);
    assert_eq!(a, uuids(b"a"));
}
