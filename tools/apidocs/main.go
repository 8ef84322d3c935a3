// Command apidocs writes the reference of API groups, with a page for each, from the Go types and their markers. It reads them with the
// library that generates the CustomResourceDefinitions, so both match.
//
//	apidocs -o docs/reference -kubernetes v1.37 ./api/...
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"

	"golang.org/x/tools/go/packages"
	"sigs.k8s.io/controller-tools/pkg/loader"
)

func main() {
	log.SetFlags(0)
	directory := flag.String("o", "docs/reference", "directory for the pages")
	kubernetes := flag.String("kubernetes", "", "release of Kubernetes, for example v1.37, for links to its API reference")
	var examples []string
	flag.Func(
		"examples",
		"pattern of manifests or Markdown files with examples of kinds; may be repeated",
		func(pattern string) error {
			files, err := filepath.Glob(pattern)
			examples = append(examples, files...)
			return err
		},
	)
	flag.Parse()
	if err := write(*directory, *kubernetes, examples, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func write(directory, kubernetes string, examples, paths []string) error {
	roots, err := loader.LoadRoots(paths...)
	if err != nil {
		return err
	}
	reference, err := read(roots)
	if err != nil {
		return err
	}
	if loader.PrintErrors(roots, packages.TypeError) {
		log.Fatal("the types have errors")
	}
	reference.kubernetes, reference.examples = kubernetes, findExamples(directory, examples)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	for name, text := range reference.pages() {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
