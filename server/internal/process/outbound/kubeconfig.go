package outbound

import (
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Kubeconfig returns how to reach the server of the current context of a kubeconfig. Errors have the path of the file.
func Kubeconfig(file string) (*rest.Config, error) {
	content, err := clientcmd.LoadFromFile(file)
	if err == nil {
		err = clientcmd.ResolveLocalPaths(content)
	}
	var config *rest.Config
	if err == nil {
		config, err = clientcmd.NewDefaultClientConfig(*content, nil).ClientConfig()
	}
	var missing *fs.PathError
	if errors.As(err, &missing) && missing.Path == file {
		err = missing.Err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return config, nil
}
