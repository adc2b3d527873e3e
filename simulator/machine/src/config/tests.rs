use super::*;

/// A machine's file, completed by its profile, with every value checked.
fn parse(text: &str) -> Result<Config, MachineError> {
    let file: toml::Table = toml::from_str(text).unwrap();
    let config: Config = profile::complete(file)?.try_into().unwrap();
    config.validate()?;
    Ok(config)
}

#[test]
fn default_survives_the_file() {
    let mut config = Config::default();
    config.fill(b"/some/where");
    let text = config.to_toml().unwrap();
    assert_eq!(parse(&text).unwrap(), config);
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(parse("").unwrap(), Config::default());
}

#[test]
fn sizes_may_have_units() {
    let config = parse("context_bytes = '1MiB'\n[[gpus]]\nmemory_bytes = '24GiB'").unwrap();
    assert_eq!((config.context_bytes, config.gpus[0].memory_bytes), (1 << 20, 24 << 30));
}

#[test]
fn wrong_values_are_named() {
    for (text, word) in [
        ("slice_ns = 1", "slice_ns = 1 "),
        ("queue_depth = 4096", "queue_depth"),
        ("profile = 'h300'", "profile = h300 is not possible: use one of h200-580, a100"),
        ("profile = 7", "profile = 7 "),
        ("gpus = []", "gpus = 0"),
        ("[[gpus]]\nuuid = 'GPU-1'", "gpus[0].uuid"),
        ("[[gpus]]\ncompute_capability = 'nine'", "nine"),
        ("[faults]\nfail_nth_allocation = 0", "fail_nth_allocation"),
    ] {
        let message = parse(text).unwrap_err().to_string();
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

#[test]
fn an_ill_typed_key_is_named() {
    let path = std::env::temp_dir().join(format!("vcuda-config-{}", std::process::id()));
    for (text, word) in [
        ("slice_ns = 'long'", "slice_ns"),
        ("[driver]\nnvml_lists = 'some'", "nvml_lists"),
        ("[driver]\nnvml_list = 'host'", "nvml_list"),
    ] {
        std::fs::write(&path, text).unwrap();
        let message = Config::read(&path).unwrap_err().to_string();
        assert!(message.contains(word) && !message.contains('\n'), "{message}");
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn each_profile_says_every_key() {
    let mut keys: Vec<Vec<String>> = Vec::new();
    for (name, text) in profile::PROFILES {
        let file: toml::Table = toml::from_str(text).unwrap();
        let part = |part: &str| file[part].as_table().unwrap().keys().cloned().collect::<Vec<_>>();
        keys.push(["machine", "gpu", "driver"].map(part).concat());
        assert_eq!(keys[0], *keys.last().unwrap(), "{name}");
        // No key of the driver has a default, so a missing one is an error here.
        file["driver"].clone().try_into::<DriverProfile>().unwrap();
        let config = Config::of_profile(name).unwrap();
        config.validate().unwrap();
        assert_eq!(config.profile, name);
    }
    assert_eq!(Config::profiles()[0], Config::default().profile);
}

#[test]
fn the_file_goes_before_the_profile() {
    let plain = Config::of_profile("t4-470").unwrap();
    assert_eq!(parse("profile = 't4-470'").unwrap(), plain);
    let config = parse(
        "profile = 't4-470'\ncontext_bytes = '7MiB'\n[driver]\nnvml_lists = 'nothing'\n[[gpus]]\nsms = 3\n[[gpus]]",
    )
    .unwrap();
    assert_eq!((config.context_bytes, config.driver.nvml_lists), (7 << 20, ProcessLists::Nothing));
    assert_eq!(config.driver.nvml_namespace_bytes, plain.driver.nvml_namespace_bytes);
    assert_eq!((config.gpus[0].sms, config.gpus[1].sms), (3, plain.gpus[0].sms));
    assert_eq!(config.gpus[0].memory_bytes, plain.gpus[0].memory_bytes);
    assert_eq!(config.driver_version, plain.driver_version);
}

#[test]
fn a_machine_written_down_keeps_its_profile() {
    for name in Config::profiles() {
        let mut config = Config::of_profile(name).unwrap().of_gpus(2, None);
        config.driver.nvml_mps_list = !config.driver.nvml_mps_list;
        assert_eq!(parse(&config.to_toml().unwrap()).unwrap(), config);
    }
}
