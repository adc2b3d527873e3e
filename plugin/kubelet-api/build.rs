//! Compiles the proto files without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = protox::compile(
        [
            "deviceplugin/v1beta1/api.proto",
            "dra/v1/api.proto",
            "dra-health/v1alpha1/api.proto",
            "podresources/v1/api.proto",
            "pluginregistration/v1/api.proto",
        ],
        ["proto"],
    )?;
    tonic_prost_build::configure().compile_fds(files)?;
    println!("cargo::rerun-if-changed=proto");
    Ok(())
}
