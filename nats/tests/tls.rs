//! A server that takes only connections with TLS, with a certificate that the test makes.

mod common;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use async_nats::ConnectOptions;
use keyqueue_nats::{Producer, create};
use servers::{Supervised, until};

use common::{DONE, Log, count, logged, one};

/// Makes an authority, and a certificate of the server by it. `false`: there is no openssl.
fn certificates(directory: &Path) -> bool {
    let extensions = directory.join("extensions");
    fs::write(&extensions, "subjectAltName = IP:127.0.0.1\n").unwrap();
    let authority =
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout ca.key -out ca.pem";
    let request = "req -newkey rsa:2048 -nodes -subj /CN=server -keyout key.pem -out request.pem";
    let sign = "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out cert.pem";
    [authority, request, sign].into_iter().all(|command| {
        let openssl = Command::new("openssl")
            .args(command.split(' '))
            .current_dir(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        openssl.is_ok_and(|status| status.success())
    })
}

#[tokio::test]
async fn a_fleet_whose_server_has_tls() {
    let Some(program) = servers::server("NATS_SERVER", "nats-server", "nats/server.sh") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    if !certificates(directory.path()) {
        println!("not tested: there is no openssl that makes certificates");
        return;
    }
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let file = |name: &str| directory.path().join(name);
    let settings = format!(
        "listen: 127.0.0.1:{port}\njetstream {{ store_dir: {:?} }}\ntls {{ cert_file: {:?}, key_file: {:?} }}\n",
        file("store"),
        file("cert.pem"),
        file("key.pem")
    );
    fs::write(file("nats.conf"), settings).unwrap();
    let arguments = ["-c".into(), file("nats.conf")];
    let _server = Supervised::start(&program, &arguments, &file("log"), None).unwrap();
    let connect = |trusts: bool| {
        let options = ConnectOptions::new().require_tls(true);
        let options = match trusts {
            true => options.add_root_certificates(file("ca.pem")),
            false => options,
        };
        options.connect(format!("tls://127.0.0.1:{port}"))
    };
    until("the server is there", async || connect(true).await.is_ok()).await;
    assert!(connect(false).await.is_err(), "nobody knows the authority");
    let (client, config) = (connect(true).await.unwrap(), one());
    create(&client, &config).await.unwrap();
    let log = Log::default();
    let replica = logged(client.clone(), &config, "a", &log, |_| {
        std::future::ready(DONE)
    })
    .await;
    let producer = Producer::new(client, &config).unwrap();
    producer.add("key", "").await.unwrap();
    until("it is delivered", async || count(&log, "key") == 1).await;
    replica.leave().await;
}
