package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

const (
	// comparePeriod is the time between two looks for changes of schemas. It costs two small requests. A comparison that fails costs a process
	// each time: the time doubles up to longestComparePause.
	comparePeriod, longestComparePause = 10 * time.Second, 10 * time.Minute
	// compareTime is the maximum time of a comparison.
	compareTime = 5 * time.Minute
	// maxSchemaBytes is the maximum size of all exported schemas, and mostResources the number of resources in the status of a Cluster.
	maxSchemaBytes, mostResources = 64 << 20, 500
	// comparer is the program that compares schemas, in the directory of the agent.
	comparer = "kcp-fleet"
)

// comparison compares the exported schemas with those of the cluster whenever one of the two has changed. It holds none of them in memory
// in the meantime.
type comparison struct {
	*Agent
	fleet  dynamic.Interface
	client *http.Client
	// tag identifies the exported schemas that were compared, and served those of the cluster for the group versions in paths.
	tag, served string
	paths       []string
}

// keepComparing compares again and again until ctx ends.
func (s *syncer) keepComparing(ctx context.Context) {
	client, err := rest.HTTPClientFor(s.fleetConfig)
	if err != nil {
		klog.Background().Error(err, "Schemas are not compared")
		return
	}
	c := &comparison{Agent: s.Agent, fleet: s.fleet, client: client}
	wait := newBackoff(comparePeriod, longestComparePause)
	for ctx.Err() == nil {
		err := c.compare(ctx)
		if err != nil && ctx.Err() == nil {
			klog.Background().Info("Schemas not compared completely, trying again", "error", err.Error())
		}
		sleep(ctx, wait.after(err != nil))
	}
}

// compare compares all resources and reports the result, unless nothing has changed since the last time.
func (c *comparison) compare(ctx context.Context) error {
	served, err := c.servedNow()
	if err != nil {
		return err
	}
	tag := c.tag
	if served != c.served {
		tag = ""
	}
	schemas, tag, err := c.exported(ctx, tag)
	if err != nil || schemas == nil {
		return err
	}
	list, err := parse(schemas)
	if err != nil {
		return err
	}
	c.paths = pathsOf(list)
	if served, err = c.servedNow(); err != nil { // before the comparison: a later change is found the next time
		return err
	}
	result, err := c.run(ctx, schemas)
	if err != nil {
		return err
	}
	if _, err = c.updateCluster(ctx, c.fleet, func(s *v1alpha1.ClusterStatus) {
		resources := withFormer(list, result.Resources, s.Resources)
		s.Resources = resources[:min(len(resources), mostResources)]
	}); err != nil {
		return err
	}
	if result.Error != "" {
		return errors.New(result.Error)
	}
	c.tag, c.served = tag, served
	return nil
}

// exportedSchema is what the agent reads of an exported schema.
type exportedSchema struct {
	Metadata struct{ Name string }
	Spec     struct {
		Group    string
		Versions []struct {
			Name    string
			Storage bool
		}
	}
}

func parse(schemas []byte) (list []exportedSchema, err error) {
	if err := json.Unmarshal(schemas, &list); err != nil {
		return nil, fmt.Errorf("exported schemas: %w", err)
	}
	return list, nil
}

// withFormer returns the results of a comparison in the order of the exported schemas. A schema that could not be compared keeps its former
// result: namespaces do not move because a part of the cluster was unavailable for a moment.
func withFormer(exported []exportedSchema, compared, former []v1alpha1.ClusterResource) (all []v1alpha1.ClusterResource) {
	for _, s := range exported {
		for _, results := range [][]v1alpha1.ClusterResource{compared, former} {
			i := slices.IndexFunc(results, func(r v1alpha1.ClusterResource) bool { return r.Schema == s.Metadata.Name })
			if i >= 0 {
				all = append(all, results[i])
				break
			}
		}
	}
	return all
}

// pathsOf returns the paths of the documents of OpenAPI that describe the resources of some schemas.
func pathsOf(list []exportedSchema) (paths []string) {
	for _, s := range list {
		for _, v := range s.Spec.Versions {
			switch {
			case !v.Storage:
			case s.Spec.Group == "":
				paths = append(paths, "api/"+v.Name)
			default:
				paths = append(paths, "apis/"+s.Spec.Group+"/"+v.Name)
			}
		}
	}
	return paths
}

// servedNow identifies the schemas of the cluster in the group versions that are compared.
func (c *comparison) servedNow() (string, error) {
	if len(c.paths) == 0 {
		return "", nil
	}
	all, err := c.local.Discovery().OpenAPIV3().Paths()
	if err != nil {
		return "", err
	}
	var urls []string
	for _, path := range c.paths {
		if document, ok := all[path]; ok {
			urls = append(urls, document.ServerRelativeURL()) // it has a hash of the content
		}
	}
	return strings.Join(urls, " "), nil
}

// exported returns the exported schemas as JSON, or nil if they are still those of the tag.
func (c *comparison) exported(ctx context.Context, tag string) (schemas []byte, now string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.options.URL+"/schemas", nil)
	if err != nil {
		return nil, "", err
	}
	if tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	response, err := c.client.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusNotModified:
		return nil, tag, nil
	case http.StatusOK:
		schemas, err = io.ReadAll(io.LimitReader(response.Body, maxSchemaBytes))
		return schemas, response.Header.Get("Etag"), err
	}
	return nil, "", fmt.Errorf("reading the exported schemas: the fleet responds with %s", response.Status)
}

// compared is what the comparer prints.
type compared struct {
	Resources []v1alpha1.ClusterResource `json:"resources"`
	Error     string                     `json:"error"`
}

// run compares schemas in a process of its own.
func (c *comparison) run(ctx context.Context, schemas []byte) (*compared, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, compareTime)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(filepath.Dir(program), comparer), "compare", "--kubeconfig="+c.options.Kubeconfig)
	var failure bytes.Buffer
	command.Stdin, command.Stderr = bytes.NewReader(schemas), &failure
	output, err := command.Output()
	if err != nil {
		text := failure.String()
		return nil, fmt.Errorf("comparing schemas: %w: %s", err, text[max(0, len(text)-1000):])
	}
	result := &compared{}
	return result, json.Unmarshal(output, result)
}
