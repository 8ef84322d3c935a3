// Command image packs static binaries into images, without a container engine: into the archive of an image for one
// architecture, or into an OCI layout for several, which it also pushes to a registry. Images that are packed at once
// share their files, and differ in what they start only.
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
	archive := flags.String("o", "", "archive to write, for one architecture")
	layout := flags.String("layout", "", "OCI layout to add the images to, each for all architectures")
	pushed := flags.String("push", "", "OCI layout whose images are pushed")
	registry := flags.String("registry", "", "with -push: registry, and path in it, in place of those in the references")
	architectures := flags.String("arch", runtime.GOARCH, "architectures of the binaries; {arch} in the name of a FILE stands for each")
	p := packed{labels: map[string]string{}}
	flags.StringVar(&p.user, "user", "", "number of the user that the images run as; root if it is empty")
	flags.Func("label", "a label of the images, as KEY=VALUE; may be repeated", func(v string) error {
		key, value, ok := strings.Cut(v, "=")
		if !ok {
			return errors.New("it has the form KEY=VALUE")
		}
		p.labels[key] = value
		return nil
	})
	flags.Func("image", "an image, as REFERENCE=COMMAND, with spaces between the words of the command, which may be empty; may be repeated",
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
		return fmt.Errorf("-arch %s: an archive has images for one architecture: use -layout for several", *architectures)
	}
	return errUsage
}
