// Command bundle generates the bundle with which the Operator Lifecycle Manager installs the operator, from config/, and checks it. The
// bundle refers to images by their tags in config/, or, for a release, by their digests in an OCI layout.
//
//	bundle -o bundle config
//	bundle -o bin/bundle -images bin/images config
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

func main() {
	log.SetFlags(0)
	out := flag.String("o", "bundle", "directory for the bundle")
	layout := flag.String("images", "", "OCI layout with the images; the bundle refers to them by digest")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: bundle [-o DIRECTORY] [-images LAYOUT] CONFIG")
	}
	if err := run(flag.Arg(0), *layout, *out); err != nil {
		log.Fatal(err)
	}
}

func run(config, layout, out string) error {
	s, err := read(config)
	if err != nil {
		return err
	}
	if layout != "" {
		if err := s.pin(layout); err != nil {
			return err
		}
	}
	if err := write(s, out); err != nil {
		return err
	}
	return check(out, layout != "")
}

// packageName is the name of the operator in catalogs.
const packageName = "kcp-operator"

// annotations describe the layout of the bundle for programs that find it in a registry.
var annotations = map[string]string{
	"operators.operatorframework.io.bundle.mediatype.v1":       "registry+v1",
	"operators.operatorframework.io.bundle.manifests.v1":       "manifests/",
	"operators.operatorframework.io.bundle.metadata.v1":        "metadata/",
	"operators.operatorframework.io.bundle.package.v1":         packageName,
	"operators.operatorframework.io.bundle.channels.v1":        "candidate",
	"operators.operatorframework.io.bundle.channel.default.v1": "candidate",
}

// write writes a bundle, and removes a previous one.
func write(s *source, dir string) error {
	csv, err := s.clusterServiceVersion()
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, d := range s.definitions {
		files["manifests/"+d.file] = d.text
	}
	if files["manifests/"+packageName+".clusterserviceversion.yaml"], err = marshal(csv); err != nil {
		return err
	}
	if files["metadata/annotations.yaml"], err = yaml.Marshal(map[string]any{"annotations": annotations}); err != nil {
		return err
	}
	for _, part := range []string{"manifests", "metadata"} {
		if err := os.RemoveAll(filepath.Join(dir, part)); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(dir, part), 0o755); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
