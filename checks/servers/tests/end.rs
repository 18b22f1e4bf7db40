//! How the servers end.

use std::net::TcpStream;
use std::path::Path;

use anyhow::Result;
use servers::kube::ControlPlane;

#[tokio::test]
async fn a_control_plane_that_is_dropped_leaves_nothing() -> Result<()> {
    let Some(mut plane) = ControlPlane::start().await? else {
        return Ok(());
    };
    let connect = |port| TcpStream::connect(("127.0.0.1", port));
    let (port, directory) = (plane.port(), plane.directory().to_owned());
    assert!(connect(port).is_ok());
    plane.kill_apiserver();
    assert!(connect(port).is_err(), "it was killed");
    plane.start_apiserver().await?;
    assert!(Path::new(&directory).exists());
    drop(plane);
    assert!(connect(port).is_err(), "it was dropped");
    assert!(!Path::new(&directory).exists());
    Ok(())
}
