// Command image packs static binaries into images, without a container engine. It writes the archive of an image for one architecture, or
// an OCI layout for several, and pushes a layout to a registry. Images that are packed together have the same files, and different
// commands.
//
//	image -o cert-manager.tar -user 65532 \
//		-image 'localhost/webhook:v1=/certmanager webhook' -image 'localhost/controller:v1=/certmanager controller' \
//		bin/certmanager=/certmanager
//	image -layout bin/images -arch amd64,arm64 -user 65532 -image ghcr.io/kcplane/kcp:v1=/kcp bin/linux-{arch}/kcp=/kcp
//	image -push bin/images -registry registry.example.com/mirror
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"strings"
)

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

var errUsage = errors.New(
	"usage: image -o ARCHIVE|-layout DIRECTORY [-user UID] [-arch ARCH,...] [-label KEY=VALUE]... " +
		"-image REFERENCE=COMMAND... FILE=/PATH...\n" +
		"       image -push DIRECTORY [-registry REGISTRY]",
)

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	archive := flags.String("o", "", "archive to write, with images for one architecture")
	layout := flags.String("layout", "", "OCI layout to which the images are added, each for all architectures")
	pushed := flags.String("push", "", "OCI layout whose images to push")
	registry := flags.String("registry", "", "with -push: registry and path that replace those in the references")
	architectures := flags.String("arch", runtime.GOARCH, "architectures of the binaries; {arch} in the name of a FILE stands for each")
	p := packed{labels: map[string]string{}}
	flags.StringVar(&p.user, "user", "", "numeric ID of the user of the images; the default is root")
	flags.Func("label", "a label of the images, as KEY=VALUE; may be repeated", func(v string) error {
		key, value, ok := strings.Cut(v, "=")
		if !ok {
			return errors.New("expected KEY=VALUE")
		}
		p.labels[key] = value
		return nil
	})
	flags.Func("image", "an image, as REFERENCE=COMMAND; spaces separate the arguments of the command, which may be empty; may be repeated",
		func(v string) error {
			p.images = append(p.images, v)
			return nil
		})
	if err := flags.Parse(args); err != nil {
		return err
	}
	p.files = flags.Args()
	archs := strings.Split(*architectures, ",")
	switch {
	case *pushed != "":
		return push(*pushed, *registry, out)
	case len(p.images) == 0 || len(p.files) == 0:
		return errUsage
	case *layout != "":
		return p.addTo(*layout, archs, out)
	case *archive != "" && len(archs) == 1:
		return p.write(*archive, archs[0])
	case *archive != "":
		return fmt.Errorf("-arch %s: an archive has images for one architecture; use -layout for several", *architectures)
	}
	return errUsage
}
