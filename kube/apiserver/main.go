// The two servers of a Kubernetes control plane that tests need, in one binary: `control-plane apiserver ...` is
// kube-apiserver and `control-plane etcd ...` is etcd, each with its own flags. Both modules have replace directives,
// so `go install` refuses them; as requirements of this module they build.
package main

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "apiserver":
		os.Args = append(os.Args[:1], os.Args[2:]...)
		os.Exit(cli.Run(app.NewAPIServerCommand()))
	case len(os.Args) > 1 && os.Args[1] == "etcd":
		etcdmain.Main(append(os.Args[:1], os.Args[2:]...))
	default:
		fmt.Fprintln(os.Stderr, "usage: control-plane apiserver|etcd FLAGS")
		os.Exit(2)
	}
}
