use super::*;

fn inputs() -> SpecInputs {
    SpecInputs {
        shim: Some(Shim {
            library: "/var/lib/vcuda/lib/libvcuda_shim-1.so".into(),
            preload: "/var/lib/vcuda/lib/ld.so.preload-1".into(),
        }),
        program: None,
        is_strict: false,
        has_driver_limits: false,
        inject: Inject::Cdi,
        devices: "/dev".into(),
        control_nodes: vec!["nvidiactl".to_owned()],
        gpu_nodes: BTreeMap::from([("GPU-a".to_owned(), "nvidia3".to_owned())]),
        driver: Vec::new(),
    }
}

#[test]
fn a_specification_tells_whose_limits_it_mounts() {
    let directory = Path::new("/run/vcuda/containers/web-1");
    let device = |limits| Device {
        name: "web".to_owned(),
        container_edits: edits(&inputs(), &["GPU-a".to_owned()], limits).unwrap(),
    };
    let spec = Spec::new("vcuda.io/grant", vec![device(Some(directory))]);
    assert!(spec.is_of("vcuda.io/grant", "web"));
    assert!(!spec.is_of("vcuda.io/grant", "web-1") && !spec.is_of("vcuda.io/slot", "web"));
    let read: Spec = serde_json::from_slice(&serde_json::to_vec(&spec).unwrap()).unwrap();
    assert_eq!((read.limits(), &read), (Some(directory), &spec));
    assert_eq!(Spec::new("vcuda.io/grant", vec![device(None)]).limits(), None);
}

#[test]
fn a_file_is_written_completely_or_not_at_all() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("vcuda.io-grant-web.json");
    for text in ["{}", "{\"a\": 1}"] {
        place(&path, text.as_bytes()).unwrap();
        assert_eq!(read(&path).unwrap(), Some(format!("{text}\n").into_bytes()));
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    assert!(is_half_written(".vcuda.io-grant-web.json.7.new", "vcuda.io-grant-"));
    assert!(!is_half_written("vcuda.io-grant-web.json.7.new", "vcuda.io-grant-"));
    assert!(!is_half_written(".nvidia.json.7.new", "vcuda.io-grant-"));
    assert_eq!(read(scratch.path()).unwrap(), None);
}
