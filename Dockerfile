# An image whose default command searches for the best settings of ResNet-50 in the container that it runs in:
#
#     docker build -t tftune . && docker run --cpus 4 -v "$PWD/results:/project/results" tftune
#     docker run --cpus 4 -v "$PWD:/project" tftune search ./saved_model
#
# Give the container the CPU limit that the model will have: what is found holds for that.
FROM python:3.12-slim
WORKDIR /opt/tftune
COPY pyproject.toml README.md LICENSE ./
COPY tuner tuner
COPY search_spaces search_spaces
COPY workloads workloads
COPY results/rules.json results/rules.json
COPY results/profiles results/profiles
COPY docs/serve_rest.py docs/serve_rest.py
RUN pip install --no-cache-dir '.[cluster]'
WORKDIR /project
ENTRYPOINT ["tftune"]
CMD ["search", "resnet50"]
