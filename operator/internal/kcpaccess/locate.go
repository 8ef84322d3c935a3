package kcpaccess

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shardAnnotation of a Workspace is the name of the shard of its logical cluster.
const shardAnnotation = "core.kcp.io/shard"

// maxObject is the maximum size of an object.
const maxObject = 4 << 20

// rootShard is the name of the root shard in kcp.
const rootShard = "root"

// locate returns the URL of the shard that holds the workspace with a path below root, and the name of its logical cluster. It follows the
// Workspaces, each at the shard of its parent. Other paths are returned as they are, at the root shard.
func locate(ctx context.Context, client *http.Client, root, path string) (url, cluster string, err error) {
	names := strings.Split(path, ":")
	if names[0] != "root" {
		return root, path, nil
	}
	url, cluster = root, "root"
	for _, name := range names[1:] {
		workspace := struct {
			Metadata struct{ Annotations map[string]string }
			Spec     struct{ Cluster string }
		}{}
		if err := get(ctx, client, url+"/clusters/"+cluster+"/apis/tenancy.kcp.io/v1alpha1/workspaces/"+name, &workspace); err != nil {
			return "", "", err
		}
		if cluster = workspace.Spec.Cluster; cluster == "" {
			return "", "", fmt.Errorf("workspace %s of %s is not scheduled yet", name, path)
		}
		switch shard := workspace.Metadata.Annotations[shardAnnotation]; shard {
		case "":
		case rootShard:
			url = root
		default:
			object := struct{ Spec struct{ BaseURL string } }{}
			if err := get(ctx, client, root+"/clusters/root/apis/core.kcp.io/v1alpha1/shards/"+shard, &object); err != nil {
				return "", "", err
			}
			url = strings.TrimSuffix(object.Spec.BaseURL, "/")
		}
	}
	return url, cluster, nil
}

// get reads an object of kcp. An error of kcp has its status, so that callers recognize what does not exist.
func get(ctx context.Context, client *http.Client, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	return send(client, request, into)
}

// send sends a request, and decodes the response unless into is nil.
func send(client *http.Client, request *http.Request, into any) error {
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxObject))
	if err != nil {
		return err
	}
	if response.StatusCode/100 == 2 {
		if into == nil {
			return nil
		}
		return json.Unmarshal(body, into)
	}
	status := metav1.Status{}
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return fmt.Errorf("%s: %s", request.URL, response.Status)
}
